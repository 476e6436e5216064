// multiply -> tanh -> add: one kernel wherever the three follow each other.
pdl.pattern @scaled_tanh_add : benefit(2) {
  %x = pdl.operand
  %y = pdl.operand
  %z = pdl.operand
  %t = pdl.type
  %0 = pdl.operation "graph.multiply"(%x, %y : !pdl.value, !pdl.value) -> (%t : !pdl.type)
  %1 = pdl.result 0 of %0
  %2 = pdl.operation "graph.tanh"(%1 : !pdl.value) -> (%t : !pdl.type)
  %3 = pdl.result 0 of %2
  %4 = pdl.operation "graph.add"(%3, %z : !pdl.value, !pdl.value) -> (%t : !pdl.type)
  pdl.rewrite %4 with "fuse"
}

// tanh -> add, where that is not part of the above.
pdl.pattern @tanh_add : benefit(1) {
  %x = pdl.operand
  %z = pdl.operand
  %t = pdl.type
  %0 = pdl.operation "graph.tanh"(%x : !pdl.value) -> (%t : !pdl.type)
  %1 = pdl.result 0 of %0
  %2 = pdl.operation "graph.add"(%1, %z : !pdl.value, !pdl.value) -> (%t : !pdl.type)
  pdl.rewrite %2 with "fuse"
}
