// RUN: fuse-opt %s | filecheck %s
// RUN: %roundtrip

// Every kind of op in its text form; attributes that are no properties stay.
func.func @ops(%x: tensor<4x3xf32>, %b: tensor<3xf32> {graph.donated}, %m: tensor<4x3xi1>, %d: tensor<?x3xf32>) -> tensor<4x3xf32> {
  %c = graph.constant dense<1.5> : tensor<f32>
  %t = graph.constant {note = "kept"} dense<[1, 2, 3]> : tensor<3xi32>
  %nan = graph.constant dense<[0x7FC00000, 0xFF800000, 1.0]> : tensor<3xf32>
  %none = graph.constant dense<> : tensor<0x3xf32>
  %0 = graph.add %x, %b : (tensor<4x3xf32>, tensor<3xf32>) -> tensor<4x3xf32>
  %1 = graph.where %m, %0, %c : (tensor<4x3xi1>, tensor<4x3xf32>, tensor<f32>) -> tensor<4x3xf32>
  %2 = graph.gelu %1 {approximate = "tanh", no_fuse} : (tensor<4x3xf32>) -> tensor<4x3xf32>
  %3 = graph.astype %2 {dtype = f16} : (tensor<4x3xf32>) -> tensor<4x3xf16>
  %4 = graph.slice %x {starts = array<i64: -1, 0>, stops = array<i64: -5, 3>, steps = array<i64: -1, 2>} : (tensor<4x3xf32>) -> tensor<4x2xf32>
  %5 = graph.reshape %4 {shape = array<i64: 8>} : (tensor<4x2xf32>) -> tensor<8xf32>
  %6 = graph.permute_dims %x {axes = array<i64: 1, 0>} : (tensor<4x3xf32>) -> tensor<3x4xf32>
  %7 = graph.broadcast_to %b {shape = array<i64: 2, 3>} : (tensor<3xf32>) -> tensor<2x3xf32>
  %8 = graph.concat %x, %7 {axis = 0 : i64} : (tensor<4x3xf32>, tensor<2x3xf32>) -> tensor<6x3xf32>
  %9 = graph.sum %x {axes = array<i64: -1>, keepdims = true} : (tensor<4x3xf32>) -> tensor<4x1xf32>
  %10 = graph.max %x : (tensor<4x3xf32>) -> tensor<f32>
  %11 = graph.softmax %x {axis = 0 : i64} : (tensor<4x3xf32>) -> tensor<4x3xf32>
  %12 = graph.layer_norm %x, %b, %b {epsilon = 0.001 : f64} : (tensor<4x3xf32>, tensor<3xf32>, tensor<3xf32>) -> tensor<4x3xf32>
  %13 = graph.matmul %x, %6 : (tensor<4x3xf32>, tensor<3x4xf32>) -> tensor<4x4xf32>
  %14 = graph.exp %d : (tensor<?x3xf32>) -> tensor<?x3xf32>
  func.return %2 : tensor<4x3xf32>
}

// CHECK-LABEL: func.func @ops(%x: tensor<4x3xf32>, %b: tensor<3xf32> {graph.donated}, %m: tensor<4x3xi1>, %d: tensor<?x3xf32>) -> tensor<4x3xf32> {
// CHECK-NEXT:      %c = graph.constant dense<1.500000e+00> : tensor<f32>
// CHECK-NEXT:      %t = graph.constant {note = "kept"} dense<[1, 2, 3]> : tensor<3xi32>
// CHECK-NEXT:      %nan = graph.constant dense<[0x7fc00000, 0xff800000, 1.000000e+00]> : tensor<3xf32>
// CHECK-NEXT:      %none = graph.constant dense<> : tensor<0x3xf32>
// CHECK-NEXT:      %0 = graph.add %x, %b : (tensor<4x3xf32>, tensor<3xf32>) -> tensor<4x3xf32>
// CHECK-NEXT:      %1 = graph.where %m, %0, %c : (tensor<4x3xi1>, tensor<4x3xf32>, tensor<f32>) -> tensor<4x3xf32>
// CHECK-NEXT:      %2 = graph.gelu %1 {approximate = "tanh", no_fuse} : (tensor<4x3xf32>) -> tensor<4x3xf32>
// CHECK-NEXT:      %3 = graph.astype %2 {dtype = f16} : (tensor<4x3xf32>) -> tensor<4x3xf16>
// CHECK-NEXT:      %4 = graph.slice %x {starts = array<i64: -1, 0>, stops = array<i64: -5, 3>, steps = array<i64: -1, 2>} : (tensor<4x3xf32>) -> tensor<4x2xf32>
// CHECK-NEXT:      %5 = graph.reshape %4 {shape = array<i64: 8>} : (tensor<4x2xf32>) -> tensor<8xf32>
// CHECK-NEXT:      %6 = graph.permute_dims %x {axes = array<i64: 1, 0>} : (tensor<4x3xf32>) -> tensor<3x4xf32>
// CHECK-NEXT:      %7 = graph.broadcast_to %b {shape = array<i64: 2, 3>} : (tensor<3xf32>) -> tensor<2x3xf32>
// CHECK-NEXT:      %8 = graph.concat %x, %7 {axis = 0 : i64} : (tensor<4x3xf32>, tensor<2x3xf32>) -> tensor<6x3xf32>
// CHECK-NEXT:      %9 = graph.sum %x {axes = array<i64: -1>, keepdims = true} : (tensor<4x3xf32>) -> tensor<4x1xf32>
// CHECK-NEXT:      %10 = graph.max %x : (tensor<4x3xf32>) -> tensor<f32>
// CHECK-NEXT:      %11 = graph.softmax %x {axis = 0 : i64} : (tensor<4x3xf32>) -> tensor<4x3xf32>
// CHECK-NEXT:      %12 = graph.layer_norm %x, %b, %b {epsilon = 1.000000e-03 : f64} : (tensor<4x3xf32>, tensor<3xf32>, tensor<3xf32>) -> tensor<4x3xf32>
// CHECK-NEXT:      %13 = graph.matmul %x, %6 : (tensor<4x3xf32>, tensor<3x4xf32>) -> tensor<4x4xf32>
// CHECK-NEXT:      %14 = graph.exp %d : (tensor<?x3xf32>) -> tensor<?x3xf32>
// CHECK-NEXT:      func.return %2 : tensor<4x3xf32>
// CHECK-NEXT:    }
