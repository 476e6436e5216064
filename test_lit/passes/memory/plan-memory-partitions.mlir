// RUN: fuse-opt %s --split-input-file --plan-memory | filecheck %s
// RUN: fuse-opt %s --split-input-file --plan-memory --plan-memory | filecheck %s
// RUN: fuse-opt %s --split-input-file --plan-memory | fuse-opt --split-input-file | filecheck %s
// RUN: fuse-opt %s --split-input-file --plan-memory --remarks 2>&1 >/dev/null | filecheck %s --check-prefix=REMARK
// RUN: fuse-opt %s --split-input-file --plan-memory --unfuse | filecheck %s --check-prefix=UNDONE

// %0 and %2 are never alive at once and share bytes; the place of %k is not free before the partition is done, and that of
// %g, which nobody reads any more, is.
// CHECK-LABEL: func.func @main(
// CHECK-SAME:    {fused.arena = {alignment = 64 : i64, lower_bound = 1024 : i64, method = "{{.*}}", size = 1024 : i64}}
// CHECK:         memory = "planned", slots = array<i64: {{[0-9]+}}>, inner_slots = array<i64: [[A:[0-9]+]], {{[0-9]+}}, [[A]]>}
// REMARK:        [plan-memory] planned: 'func.func' the arena is optimal inside=3 arena=1024 lower_bound=1024
// REMARK:        [plan-memory] peak: 'func.func' at step 2 there live %k (256 bytes), %p (256 bytes), the result of 'graph.exp' (256 bytes), the result of 'graph.tanh' (256 bytes) step=2
// UNDONE-LABEL:  func.func @main(
// UNDONE-NOT:    slots
// UNDONE:        graph.tanh
func.func @main(%x: tensor<8x8xf32>) -> tensor<8x8xf32> {
  %g = fused.kernel(%a = %x : tensor<8x8xf32>) -> (tensor<8x8xf32>) {
    %0 = graph.exp %a : (tensor<8x8xf32>) -> tensor<8x8xf32>
    fused.yield %0 : tensor<8x8xf32>
  }
  %k = fused.kernel(%a = %g : tensor<8x8xf32>) -> (tensor<8x8xf32>) {
    %0 = graph.exp %a : (tensor<8x8xf32>) -> tensor<8x8xf32>
    fused.yield %0 : tensor<8x8xf32>
  }
  %p = fused.partition(%a = %k : tensor<8x8xf32>) -> (tensor<8x8xf32>) attributes {backend = "mine", memory = "planned"} {
    %0 = graph.exp %a : (tensor<8x8xf32>) -> tensor<8x8xf32>
    %1 = graph.tanh %0 : (tensor<8x8xf32>) -> tensor<8x8xf32>
    %2 = graph.sin %1 : (tensor<8x8xf32>) -> tensor<8x8xf32>
    %3 = graph.add %2, %a : (tensor<8x8xf32>, tensor<8x8xf32>) -> tensor<8x8xf32>
    fused.yield %3 : tensor<8x8xf32>
  }
  %r = fused.kernel(%a = %p : tensor<8x8xf32>) -> (tensor<8x8xf32>) {
    %0 = graph.exp %a : (tensor<8x8xf32>) -> tensor<8x8xf32>
    fused.yield %0 : tensor<8x8xf32>
  }
  func.return %r : tensor<8x8xf32>
}

// -----

// Nothing is made inside but what is returned, and memory of the backend's own has no slots.
// CHECK-LABEL: func.func @nothing(
// CHECK-NOT:     inner_slots
func.func @nothing(%x: tensor<8xf32>) -> (tensor<8xf32>, tensor<8xf32>) {
  %p = fused.partition(%a = %x : tensor<8xf32>) -> (tensor<8xf32>) attributes {backend = "mine", memory = "planned"} {
    %0 = graph.exp %a : (tensor<8xf32>) -> tensor<8xf32>
    fused.yield %0 : tensor<8xf32>
  }
  %q = fused.partition(%a = %p : tensor<8xf32>) -> (tensor<8xf32>) attributes {backend = "mine", memory = "private"} {
    %0 = graph.exp %a : (tensor<8xf32>) -> tensor<8xf32>
    %1 = graph.tanh %0 : (tensor<8xf32>) -> tensor<8xf32>
    fused.yield %1 : tensor<8xf32>
  }
  func.return %p, %q : tensor<8xf32>, tensor<8xf32>
}
