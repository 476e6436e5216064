// RUN: fuse-opt %s --split-input-file --fold-constants | filecheck %s
// RUN: fuse-opt %s --split-input-file --fold-constants --fold-constants | filecheck %s

// Splats stay splats of any size; stored constants are computed element by element, moved, and summed where that is exact.
// CHECK-LABEL: func.func @folded(
// CHECK-NEXT:      %a = graph.full {value = 1.4142135381698608 : f64, shape = array<i64: 1024, 1024>, dtype = f32} : () -> tensor<1024x1024xf32>
// CHECK-NEXT:      %t = graph.constant dense<[{{\[}}3.000000e+00, 5.000000e-01], [-4.000000e+00, 6.000000e+00]]> : tensor<2x2xf32>
// CHECK-NEXT:      %s = graph.constant dense<2.750000e+00> : tensor<f32>
// CHECK-NEXT:      func.return %a, %t, %s : tensor<1024x1024xf32>, tensor<2x2xf32>, tensor<f32>
// CHECK-NEXT:    }
func.func @folded() -> (tensor<1024x1024xf32>, tensor<2x2xf32>, tensor<f32>) {
  %two = graph.full {value = 2.0, shape = array<i64: 1024, 1024>, dtype = f32} : () -> tensor<1024x1024xf32>
  %a = graph.sqrt %two : (tensor<1024x1024xf32>) -> tensor<1024x1024xf32>
  %c = graph.constant dense<[[1.5, -2.0], [0.25, 3.0]]> : tensor<2x2xf32>
  %d = graph.add %c, %c : (tensor<2x2xf32>, tensor<2x2xf32>) -> tensor<2x2xf32>
  %t = graph.permute_dims %d {axes = array<i64: 1, 0>} : (tensor<2x2xf32>) -> tensor<2x2xf32>
  %s = graph.sum %c : (tensor<2x2xf32>) -> tensor<f32>
  func.return %a, %t, %s : tensor<1024x1024xf32>, tensor<2x2xf32>, tensor<f32>
}

// -----

// Not: backends round exp differently, a sum in another order is another one, and what is stored must not grow.
// CHECK-LABEL: func.func @kept(
// CHECK:           graph.exp
// CHECK:           graph.sum
// CHECK:           graph.broadcast_to
// CHECK:           graph.negative %c {keep_live}
// CHECK:           graph.iota
func.func @kept() -> (tensor<3xf64>, tensor<f64>, tensor<4x3xf64>, tensor<3xf64>, tensor<3xf64>) {
  %c = graph.constant dense<[1.0e16, 1.0, -1.0e16]> : tensor<3xf64>
  %a = graph.exp %c : (tensor<3xf64>) -> tensor<3xf64>
  %b = graph.sum %c : (tensor<3xf64>) -> tensor<f64>
  %d = graph.broadcast_to %c {shape = array<i64: 4, 3>} : (tensor<3xf64>) -> tensor<4x3xf64>
  %e = graph.negative %c {keep_live} : (tensor<3xf64>) -> tensor<3xf64>
  %f = graph.iota {shape = array<i64: 3>, dtype = f64} : () -> tensor<3xf64>
  func.return %a, %b, %d, %e, %f : tensor<3xf64>, tensor<f64>, tensor<4x3xf64>, tensor<3xf64>, tensor<3xf64>
}
