// RUN: fuse-opt %s --split-input-file --verify-diagnostics --fuse-elementwise --explain-fusion --wrap-kernels --infer-inplace --plan-memory | filecheck %s
// RUN: not fuse-opt %s --split-input-file --default --expect "kernels=0" -o %t 2>&1 | filecheck %s --check-prefix=GIVEN

// CHECK: expect.mlir:{{[0-9]+}}:1: error: 'apart': expected kernels<=1, got 2
// CHECK-NEXT: expect.mlir:{{[0-9]+}}:3: remark: [explain-fusion] no-fuse: 'graph.exp' not fused with 'graph.abs'
// CHECK: func.func @one

// GIVEN: error: 'apart': expected kernels=0, got 2
// GIVEN: error: 'one': expected kernels=0, got 1

func.func @apart(%x: tensor<8x8xf32>) -> tensor<8x8xf32> attributes {fused.expect = "kernels<=1"} {
  %0 = graph.abs %x {no_fuse} : (tensor<8x8xf32>) -> tensor<8x8xf32>
  %1 = graph.exp %0 : (tensor<8x8xf32>) -> tensor<8x8xf32>
  func.return %1 : tensor<8x8xf32>
}

// -----

func.func @one(%x: tensor<8x8xf32>) -> tensor<8x8xf32> attributes {fused.expect = "kernels=1, inplace=0, arena=0"} {
  %0 = graph.abs %x : (tensor<8x8xf32>) -> tensor<8x8xf32>
  func.return %0 : tensor<8x8xf32>
}
