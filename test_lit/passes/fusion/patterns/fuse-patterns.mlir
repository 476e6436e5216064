// RUN: fuse-opt %s --split-input-file --fuse-patterns=file=%S/../../../../examples/patterns/tanh.pdl.mlir | filecheck %s
// RUN: fuse-opt %s --split-input-file --fuse-patterns=file=%S/../../../../examples/patterns/tanh.pdl.mlir --fuse-patterns=file=%S/../../../../examples/patterns/tanh.pdl.mlir | filecheck %s
// RUN: fuse-opt %s --split-input-file --fuse-patterns=file=%S/../../../../examples/patterns/tanh.pdl.mlir --remarks -o /dev/null 2>&1 | filecheck %s --check-prefix=REMARK
// RUN: fuse-opt %s --split-input-file --fuse-patterns=file=%S/../../../../examples/patterns/exp_chains.py | filecheck %s --check-prefix=RULE
// RUN: not fuse-opt %s --split-input-file --fuse-patterns=file=%S/../../../../examples/patterns/tanh.pdl.mlir,only=x,enable-patterns=tanh 2>&1 | filecheck %s --check-prefix=NAME

// NAME: fuse-patterns.mlir:{{[0-9]+}}:1: error: 'fuse-patterns' option 'enable-patterns': no 'tanh' in '{{.*}}tanh.pdl.mlir'; did you mean 'tanh_add'?

// The greater benefit comes first; the op behind is in no pattern.
// CHECK-LABEL: func.func @chain(
// CHECK-NEXT:      %0 = fused.kernel(%x_1 = %x : tensor<8xf32>, %y_1 = %y : tensor<8xf32>) -> (tensor<8xf32>) {
// CHECK-NEXT:        %1 = graph.multiply %x_1, %y_1 : (tensor<8xf32>, tensor<8xf32>) -> tensor<8xf32>
// CHECK-NEXT:        %2 = graph.tanh %1 : (tensor<8xf32>) -> tensor<8xf32>
// CHECK-NEXT:        %3 = graph.add %2, %y_1 : (tensor<8xf32>, tensor<8xf32>) -> tensor<8xf32>
// CHECK-NEXT:        fused.yield %3 : tensor<8xf32>
// CHECK-NEXT:      }
// CHECK-NEXT:      %1 = graph.exp %0 : (tensor<8xf32>) -> tensor<8xf32>
// CHECK-NEXT:      %2 = graph.exp %1 : (tensor<8xf32>) -> tensor<8xf32>
// CHECK-NEXT:      func.return %2 : tensor<8xf32>
// REMARK: match: 'graph.add' is the root of a match of 'scaled_tanh_add', with 'graph.multiply', 'graph.tanh'
// RULE-LABEL: func.func @chain(
// RULE-NEXT:       graph.multiply
// RULE-NEXT:       graph.tanh
// RULE-NEXT:       graph.add
// RULE-NEXT:       fused.kernel
// RULE-NEXT:         graph.exp
// RULE-NEXT:         graph.exp
// RULE-NEXT:         fused.yield
func.func @chain(%x: tensor<8xf32>, %y: tensor<8xf32>) -> tensor<8xf32> {
  %0 = graph.multiply %x, %y : (tensor<8xf32>, tensor<8xf32>) -> tensor<8xf32>
  %1 = graph.tanh %0 : (tensor<8xf32>) -> tensor<8xf32>
  %2 = graph.add %1, %y : (tensor<8xf32>, tensor<8xf32>) -> tensor<8xf32>
  %3 = graph.exp %2 : (tensor<8xf32>) -> tensor<8xf32>
  %4 = graph.exp %3 : (tensor<8xf32>) -> tensor<8xf32>
  func.return %4 : tensor<8xf32>
}

// -----

// Not: the types differ, which the patterns name alike.
// CHECK-LABEL: func.func @types(
// CHECK-NEXT:      graph.multiply
// CHECK-NEXT:      graph.tanh
// CHECK-NEXT:      graph.add
// CHECK-NEXT:      func.return
func.func @types(%x: tensor<8xf32>, %z: tensor<4x8xf32>) -> tensor<4x8xf32> {
  %0 = graph.multiply %x, %x : (tensor<8xf32>, tensor<8xf32>) -> tensor<8xf32>
  %1 = graph.tanh %0 : (tensor<8xf32>) -> tensor<8xf32>
  %2 = graph.add %1, %z : (tensor<8xf32>, tensor<4x8xf32>) -> tensor<4x8xf32>
  func.return %2 : tensor<4x8xf32>
}

// -----

// Not: a path outside would make a cycle.
// CHECK-LABEL: func.func @cycle(
// CHECK-NEXT:      graph.tanh
// CHECK-NEXT:      graph.sqrt
// CHECK-NEXT:      graph.add
// CHECK-NEXT:      func.return
// REMARK: cycle: 'graph.add' not fused with 'graph.tanh' by pattern 'tanh_add': 'graph.sqrt' outside the group depends on it and feeds it: a cycle (otherwise with: fuse 'graph.sqrt' with them)
func.func @cycle(%x: tensor<8xf32>) -> tensor<8xf32> {
  %0 = graph.tanh %x : (tensor<8xf32>) -> tensor<8xf32>
  %1 = graph.sqrt %0 : (tensor<8xf32>) -> tensor<8xf32>
  %2 = graph.add %0, %1 : (tensor<8xf32>, tensor<8xf32>) -> tensor<8xf32>
  func.return %2 : tensor<8xf32>
}

// -----

// Not: no_fuse.
// CHECK-LABEL: func.func @directive(
// CHECK-NEXT:      graph.tanh
// CHECK-NEXT:      graph.add
// CHECK-NEXT:      func.return
// REMARK: no-fuse: 'graph.add' not fused with 'graph.tanh' by pattern 'tanh_add': 'graph.tanh' carries the directive no_fuse (otherwise with: remove no_fuse)
func.func @directive(%x: tensor<8xf32>) -> tensor<8xf32> {
  %0 = graph.tanh %x {no_fuse} : (tensor<8xf32>) -> tensor<8xf32>
  %1 = graph.add %0, %x : (tensor<8xf32>, tensor<8xf32>) -> tensor<8xf32>
  func.return %1 : tensor<8xf32>
}
