// RUN: fuse-opt %s --canonicalize=math=fast | filecheck %s
// RUN: fuse-opt %s --canonicalize=math=fast --canonicalize=math=fast | filecheck %s

// As if floats were real numbers.
// CHECK-LABEL: func.func @fast(
// CHECK-NEXT:      %0 = graph.constant dense<0.333333343> : tensor<f32>
// CHECK-NEXT:      %b = graph.multiply %x, %0 : (tensor<8xf32>, tensor<f32>) -> tensor<8xf32>
// CHECK-NEXT:      %1 = graph.rsqrt %y : (tensor<8xf32>) -> tensor<8xf32>
// CHECK-NEXT:      %c = graph.multiply %x, %1 : (tensor<8xf32>, tensor<8xf32>) -> tensor<8xf32>
// CHECK-NEXT:      %2 = graph.constant dense<1.000000e+00> : tensor<f32>
// CHECK-NEXT:      %e = graph.add %x, %2 : (tensor<8xf32>, tensor<f32>) -> tensor<8xf32>
// CHECK-NEXT:      func.return %x, %b, %c, %e : tensor<8xf32>, tensor<8xf32>, tensor<8xf32>, tensor<8xf32>
// CHECK-NEXT:    }
func.func @fast(%x: tensor<8xf32>, %y: tensor<8xf32>) -> (tensor<8xf32>, tensor<8xf32>, tensor<8xf32>, tensor<8xf32>) {
  %zero = graph.constant dense<0.0> : tensor<f32>
  %two = graph.constant dense<2.0> : tensor<f32>
  %three = graph.constant dense<3.0> : tensor<f32>
  %a = graph.add %x, %zero : (tensor<8xf32>, tensor<f32>) -> tensor<8xf32>
  %b = graph.divide %x, %three : (tensor<8xf32>, tensor<f32>) -> tensor<8xf32>
  %s = graph.sqrt %y : (tensor<8xf32>) -> tensor<8xf32>
  %c = graph.divide %x, %s : (tensor<8xf32>, tensor<8xf32>) -> tensor<8xf32>
  %d = graph.add %x, %three : (tensor<8xf32>, tensor<f32>) -> tensor<8xf32>
  %e = graph.subtract %d, %two : (tensor<8xf32>, tensor<f32>) -> tensor<8xf32>
  func.return %a, %b, %c, %e : tensor<8xf32>, tensor<8xf32>, tensor<8xf32>, tensor<8xf32>
}
