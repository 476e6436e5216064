// RUN: fuse-opt %s --fuse-elementwise --unfuse -p dce --fuse-elementwise=max-ops=1 --print-ir-after-all 2>&1 >%t | filecheck %s --check-prefix=ORDER
// RUN: filecheck %s < %t
// RUN: fuse-opt %s -p 'builtin.module(fuse-elementwise, dce)' | filecheck %s --check-prefix=FUSED

// ORDER: IR after fuse-elementwise //
// ORDER: IR after unfuse //
// ORDER: IR after dce //
// ORDER: IR after fuse-elementwise{max_ops=1} //

// CHECK-LABEL: func.func @main
// CHECK-NOT: fused.kernel

// FUSED-LABEL: func.func @main
// FUSED: fused.kernel

func.func @main(%x: tensor<4x8xf32>) -> tensor<4x8xf32> {
  %0 = graph.exp %x : (tensor<4x8xf32>) -> tensor<4x8xf32>
  %1 = graph.abs %0 : (tensor<4x8xf32>) -> tensor<4x8xf32>
  func.return %1 : tensor<4x8xf32>
}
