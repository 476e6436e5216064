// Parameters of elementwise ops are kept, and dynamic extents carried: `?` meets any extent and wins against 1.
// RUN: %roundtrip

// CHECK:       func.func @parameters(%x: tensor<4x3xf32>) -> tensor<4x3xf32> {
// CHECK-NEXT:    %0 = graph.leaky_relu %x {alpha = 2.000000e-01 : f64} : (tensor<4x3xf32>) -> tensor<4x3xf32>
// CHECK-NEXT:    %1 = graph.hard_tanh %0 {min = -2.000000e+00 : f64, max = 2.500000e+00 : f64} : (tensor<4x3xf32>) -> tensor<4x3xf32>
// CHECK-NEXT:    %2 = graph.shrink %1 {lambd = 2.500000e-01 : f64, bias = 2.500000e-01 : f64} : (tensor<4x3xf32>) -> tensor<4x3xf32>
// CHECK-NEXT:    %3 = graph.softplus %2 {beta = 2.000000e+00 : f64, threshold = 2.000000e+01 : f64} : (tensor<4x3xf32>) -> tensor<4x3xf32>
// CHECK-NEXT:    func.return %3 : tensor<4x3xf32>
func.func @parameters(%x: tensor<4x3xf32>) -> tensor<4x3xf32> {
  %0 = graph.leaky_relu %x {alpha = 0.2 : f64} : (tensor<4x3xf32>) -> tensor<4x3xf32>
  %1 = graph.hard_tanh %0 {min = -2.0 : f64, max = 2.5 : f64} : (tensor<4x3xf32>) -> tensor<4x3xf32>
  %2 = graph.shrink %1 {lambd = 0.25 : f64, bias = 0.25 : f64} : (tensor<4x3xf32>) -> tensor<4x3xf32>
  %3 = graph.softplus %2 {beta = 2.0 : f64, threshold = 20.0 : f64} : (tensor<4x3xf32>) -> tensor<4x3xf32>
  func.return %3 : tensor<4x3xf32>
}

// CHECK:       func.func @dynamic(%x: tensor<?x3xf32>, %low: tensor<f32>, %high: tensor<1x3xf32>) -> tensor<?x3xi1> {
// CHECK-NEXT:    %0 = graph.clip %x, %low, %high : (tensor<?x3xf32>, tensor<f32>, tensor<1x3xf32>) -> tensor<?x3xf32>
// CHECK-NEXT:    %1 = graph.isfinite %0 : (tensor<?x3xf32>) -> tensor<?x3xi1>
// CHECK-NEXT:    func.return %1 : tensor<?x3xi1>
func.func @dynamic(%x: tensor<?x3xf32>, %low: tensor<f32>, %high: tensor<1x3xf32>) -> tensor<?x3xi1> {
  %0 = graph.clip %x, %low, %high : (tensor<?x3xf32>, tensor<f32>, tensor<1x3xf32>) -> tensor<?x3xf32>
  %1 = graph.isfinite %0 : (tensor<?x3xf32>) -> tensor<?x3xi1>
  func.return %1 : tensor<?x3xi1>
}
