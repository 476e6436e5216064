// RUN: fuse-opt %s --split-input-file --gpu-attach-device --align-rows=device=h100 | filecheck %s
// RUN: fuse-opt %s --split-input-file --align-rows | filecheck %s --check-prefix CPU

// CHECK-LABEL: @odd
// CHECK-NEXT: %0 = graph.pad %x {pads = array<i64: 0, 0, 0, 5>} : (tensor<1021x771xbf16>) -> tensor<1021x776xbf16>
// CHECK-NEXT: %1 = graph.pad %w {pads = array<i64: 0, 0, 3, 5>} : (tensor<517x771xbf16>) -> tensor<520x776xbf16>
// CHECK-NEXT: %2 = graph.matmul %0, %1 {transpose_rhs = true} : (tensor<1021x776xbf16>, tensor<520x776xbf16>) -> tensor<1021x520xbf16>
// CHECK-NEXT: %y = graph.slice %2 {starts = array<i64: 0, 0>, stops = array<i64: 1021, 517>}
// CPU-LABEL: @odd
// CPU-NEXT: %y = graph.matmul %x, %w
func.func @odd(%x: tensor<1021x771xbf16>, %w: tensor<517x771xbf16>) -> tensor<1021x517xbf16> {
  %y = graph.matmul %x, %w {transpose_rhs = true} : (tensor<1021x771xbf16>, tensor<517x771xbf16>) -> tensor<1021x517xbf16>
  func.return %y : tensor<1021x517xbf16>
}

// -----

// Rows that begin so already, small products, f32, whose rate is not known to differ, and what a promise names.
// CHECK-LABEL: @others
// CHECK-NOT: graph.pad
// CHECK: func.return
func.func @others(%x: tensor<512x768xf16>, %w: tensor<768x520xf16>, %a: tensor<5x7xf16>, %b: tensor<7x3xf16>, %c: tensor<515x771xf32>, %d: tensor<771x33xf32>, %e: tensor<1021x771xf16>) -> (tensor<512x520xf16>, tensor<5x3xf16>, tensor<515x33xf32>, tensor<1021x1021xf16>) {
  %0 = graph.matmul %x, %w : (tensor<512x768xf16>, tensor<768x520xf16>) -> tensor<512x520xf16>
  %1 = graph.matmul %a, %b : (tensor<5x7xf16>, tensor<7x3xf16>) -> tensor<5x3xf16>
  %2 = graph.matmul %c, %d : (tensor<515x771xf32>, tensor<771x33xf32>) -> tensor<515x33xf32>
  %3 = graph.matmul %e, %e {transpose_rhs = true, use_implementation = "cublas.matmul"} : (tensor<1021x771xf16>, tensor<1021x771xf16>) -> tensor<1021x1021xf16>
  func.return %0, %1, %2, %3 : tensor<512x520xf16>, tensor<5x3xf16>, tensor<515x33xf32>, tensor<1021x1021xf16>
}
