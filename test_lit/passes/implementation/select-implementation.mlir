// RUN: fuse-opt %s --split-input-file --verify-diagnostics --select-implementation=prefer=numpy.sort,numpy.matmul_epilogue | filecheck %s
// RUN: fuse-opt %s --split-input-file --verify-diagnostics --select-implementation=prefer=numpy.sort,numpy.matmul_epilogue --select-implementation | filecheck %s
// RUN: fuse-opt %s --split-input-file --verify-diagnostics --select-implementation | filecheck %s --check-prefix=NONE

// The first preferred one that offers the op; what is named already is kept; generated code has none.
// CHECK-LABEL: func.func @main(
// CHECK:         %a = fused.kernel(%0 = %x : tensor<4x4xf32>) -> (tensor<4x4xf32>) attributes {implementation = "numpy.matmul_epilogue"} {
// CHECK:         %b = fused.kernel(%0 = %a : tensor<4x4xf32>) -> (tensor<4x4xf32>) attributes {implementation = "numpy.matmul"} {
// CHECK:         %c = fused.kernel(%0 = %b : tensor<4x4xf32>) -> (tensor<4x4xf32>) {
// Not: without a preference the default runs it, and nothing is written.
// NONE-LABEL: func.func @main(
// NONE:         %a = fused.kernel(%0 = %x : tensor<4x4xf32>) -> (tensor<4x4xf32>) {
// NONE:         %b = fused.kernel(%0 = %a : tensor<4x4xf32>) -> (tensor<4x4xf32>) attributes {implementation = "numpy.matmul"} {
func.func @main(%x: tensor<4x4xf32>) -> tensor<4x4xf32> {
  %a = fused.kernel(%0 = %x : tensor<4x4xf32>) -> (tensor<4x4xf32>) {
    %1 = graph.matmul %0, %0 : (tensor<4x4xf32>, tensor<4x4xf32>) -> tensor<4x4xf32>
    fused.yield %1 : tensor<4x4xf32>
  }
  %b = fused.kernel(%2 = %a : tensor<4x4xf32>) -> (tensor<4x4xf32>) attributes {implementation = "numpy.matmul"} {
    %3 = graph.matmul %2, %2 : (tensor<4x4xf32>, tensor<4x4xf32>) -> tensor<4x4xf32>
    fused.yield %3 : tensor<4x4xf32>
  }
  %c = fused.kernel(%4 = %b : tensor<4x4xf32>) -> (tensor<4x4xf32>) {
    %5 = graph.exp %4 : (tensor<4x4xf32>) -> tensor<4x4xf32>
    fused.yield %5 : tensor<4x4xf32>
  }
  func.return %c : tensor<4x4xf32>
}

// -----

// CHECK: error: 'fused.kernel' implementation "numpy.conv" does not run 'graph.matmul': expected one of fuse.matmul, numpy.matmul, numpy.matmul_epilogue; remove the property or register the implementation
func.func @unknown(%x: tensor<4x4xf32>) -> tensor<4x4xf32> {
  %a = fused.kernel(%0 = %x : tensor<4x4xf32>) -> (tensor<4x4xf32>) attributes {implementation = "numpy.conv"} {
    %1 = graph.matmul %0, %0 : (tensor<4x4xf32>, tensor<4x4xf32>) -> tensor<4x4xf32>
    fused.yield %1 : tensor<4x4xf32>
  }
  func.return %a : tensor<4x4xf32>
}
