// RUN: fuse-opt %s --split-input-file --verify-diagnostics --backend=%S/Inputs/composites.py --select-composites | filecheck %s
// RUN: fuse-opt %s --split-input-file --verify-diagnostics --backend=%S/Inputs/composites.py --select-composites --select-composites | filecheck %s
// RUN: fuse-opt %s --split-input-file --verify-diagnostics --backend=%S/Inputs/composites.py --select-composites --remarks 2>&1 | filecheck %s --check-prefix=REMARK
// RUN: fuse-opt %s --split-input-file --verify-diagnostics --backend=%S/Inputs/composites.py --select-composites=prefer=whole,numerics=fast --remarks 2>&1 | filecheck %s --check-prefix=PREFER

// The implementation says that it takes less time than a pass over memory; decompose leaves what it runs.
// CHECK-LABEL: func.func @taken(
// CHECK-NEXT:    %0 = fused.kernel({{.*}}attributes {implementation = "whole.softmax"} {
// CHECK-NEXT:      graph.softmax
// REMARK:      remark: [select-composites] selected: 'graph.softmax' is run by "whole.softmax" us=0.7 generated_us=4.3
func.func @taken(%x: tensor<64x512xf32>) -> tensor<64x512xf32> {
  %0 = graph.softmax %x {axis = -1 : i64} : (tensor<64x512xf32>) -> tensor<64x512xf32>
  func.return %0 : tensor<64x512xf32>
}

// -----

// Fused with its neighbours it costs no pass over memory, and no launch.
// CHECK-LABEL: func.func @fused_is_better(
// CHECK-NOT:     implementation
// REMARK:      remark: [select-composites] generated: 'graph.softmax' is code of the program, not "whole.softmax" (otherwise with: use_implementation = "whole.softmax") us=0.7 generated_us=0.0
// PREFER:      selected: 'graph.softmax' is run by "whole.softmax", which is preferred
func.func @fused_is_better(%x: tensor<64x512xf32>) -> tensor<64x512xf32> {
  %0 = graph.exp %x : (tensor<64x512xf32>) -> tensor<64x512xf32>
  %1 = graph.softmax %0 {axis = -1 : i64} : (tensor<64x512xf32>) -> tensor<64x512xf32>
  %2 = graph.exp %1 : (tensor<64x512xf32>) -> tensor<64x512xf32>
  func.return %2 : tensor<64x512xf32>
}

// -----

// Nothing takes the one; the other is of fast numerics.
// CHECK-LABEL: func.func @refused(
// CHECK-NOT:     implementation
// REMARK:      generated: 'graph.softmax' is code of the program: nothing that is offered takes it refused=whole.softmax:dtype
// REMARK:      generated: 'graph.log_softmax' is code of the program: nothing that is offered takes it refused=whole.log_softmax:numerics
// PREFER:      selected: 'graph.log_softmax' is run by "whole.log_softmax", which is preferred
func.func @refused(%x: tensor<64x512xf64>, %y: tensor<64x512xf32>) -> (tensor<64x512xf64>, tensor<64x512xf32>) {
  %0 = graph.softmax %x {axis = -1 : i64} : (tensor<64x512xf64>) -> tensor<64x512xf64>
  %1 = graph.log_softmax %y {axis = -1 : i64} : (tensor<64x512xf32>) -> tensor<64x512xf32>
  func.return %0, %1 : tensor<64x512xf64>, tensor<64x512xf32>
}

// -----

// A pointwise op is given away where a person asks for it, and nowhere else.
// CHECK-LABEL: func.func @promise(
// CHECK-NEXT:    %0 = fused.kernel({{.*}}implementation = "whole.exp"
// CHECK-NEXT:      graph.exp
// CHECK-NEXT:      fused.yield
// CHECK-NEXT:    }
// CHECK-NEXT:    %1 = graph.exp %0 :
func.func @promise(%x: tensor<4x8xf32>) -> tensor<4x8xf32> {
  %0 = graph.exp %x {use_implementation = "whole.exp"} : (tensor<4x8xf32>) -> tensor<4x8xf32>
  %1 = graph.exp %0 : (tensor<4x8xf32>) -> tensor<4x8xf32>
  func.return %1 : tensor<4x8xf32>
}

// -----

// What the implementation leaves beside its result, for a backward pass, is a result of the kernel; what it does not is an op.
// CHECK-LABEL: func.func @saved(
// CHECK:         %y, %m = fused.kernel({{.*}}) -> (tensor<64x512xf32>, tensor<64xf32>) attributes {implementation = "whole.softmax", saved = array<i64: 1>} {
// CHECK-NEXT:      graph.softmax %x_1
// CHECK-NEXT:      graph.max %x_1
// CHECK-NEXT:      fused.yield %y_1, %m_1
// CHECK-NEXT:    }
// CHECK-NEXT:    graph.max %x {axes = array<i64: 0>}
// REMARK:        saved: 'graph.max' is left by "whole.softmax" beside the result of 'graph.softmax'
// REMARK:        not-saved: 'graph.max' is not left by "whole.softmax" beside the result of 'graph.softmax' refused=axes
func.func @saved(%x: tensor<64x512xf32>) -> (tensor<64x512xf32>, tensor<64xf32>, tensor<512xf32>) {
  %m = graph.max %x {axes = array<i64: 1>} : (tensor<64x512xf32>) -> tensor<64xf32>
  %y = graph.softmax %x {axis = -1 : i64} : (tensor<64x512xf32>) -> tensor<64x512xf32>
  %n = graph.max %x {axes = array<i64: 0>} : (tensor<64x512xf32>) -> tensor<512xf32>
  func.return %y, %m, %n : tensor<64x512xf32>, tensor<64xf32>, tensor<512xf32>
}
