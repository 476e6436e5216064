// RUN: fuse-opt %s --split-input-file --wrap-kernels | filecheck %s
// RUN: fuse-opt %s --split-input-file --wrap-kernels --wrap-kernels | filecheck %s

// Each op in a kernel of its own; the constant is copied into it.
// CHECK-LABEL: func.func @each(
// CHECK-NEXT:      %a = fused.kernel(%x_1 = %x : tensor<8xf32>) -> (tensor<8xf32>) {
// CHECK-NEXT:        %two = graph.constant dense<2.000000e+00> : tensor<f32>
// CHECK-NEXT:        %a_1 = graph.multiply %x_1, %two : (tensor<8xf32>, tensor<f32>) -> tensor<8xf32>
// CHECK-NEXT:        fused.yield %a_1 : tensor<8xf32>
// CHECK-NEXT:      }
// CHECK-NEXT:      %y = fused.kernel(%a_1 = %a : tensor<8xf32>) -> (tensor<8xf32>) {
// CHECK-NEXT:        %y_1 = graph.exp %a_1 : (tensor<8xf32>) -> tensor<8xf32>
// CHECK-NEXT:        fused.yield %y_1 : tensor<8xf32>
// CHECK-NEXT:      }
// CHECK-NEXT:      func.return %y : tensor<8xf32>
// CHECK-NEXT:    }
func.func @each(%x: tensor<8xf32>) -> tensor<8xf32> {
  %two = graph.constant dense<2.0> : tensor<f32>
  %a = graph.multiply %x, %two : (tensor<8xf32>, tensor<f32>) -> tensor<8xf32>
  %y = graph.exp %a : (tensor<8xf32>) -> tensor<8xf32>
  func.return %y : tensor<8xf32>
}

// -----

// Not: stored constants, views that move nothing, composites, and what is in a kernel already.
// CHECK-LABEL: func.func @outside(
// CHECK-NEXT:      %table = graph.constant dense<[1.000000e+00, 2.000000e+00, 3.000000e+00, 4.000000e+00]> : tensor<4xf32>
// CHECK-NEXT:      %flat = graph.reshape %x {shape = array<i64: 4>} : (tensor<2x2xf32>) -> tensor<4xf32>
// CHECK-NEXT:      %soft = graph.softmax %x : (tensor<2x2xf32>) -> tensor<2x2xf32>
// CHECK-NEXT:      %y = fused.kernel(%a = %flat : tensor<4xf32>, %b = %table : tensor<4xf32>) -> (tensor<4xf32>) {
// CHECK-NEXT:        %sum = graph.add %a, %b : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
// CHECK-NEXT:        fused.yield %sum : tensor<4xf32>
// CHECK-NEXT:      }
// CHECK-NEXT:      func.return %flat, %soft, %y : tensor<4xf32>, tensor<2x2xf32>, tensor<4xf32>
// CHECK-NEXT:    }
func.func @outside(%x: tensor<2x2xf32>) -> (tensor<4xf32>, tensor<2x2xf32>, tensor<4xf32>) {
  %table = graph.constant dense<[1.0, 2.0, 3.0, 4.0]> : tensor<4xf32>
  %flat = graph.reshape %x {shape = array<i64: 4>} : (tensor<2x2xf32>) -> tensor<4xf32>
  %soft = graph.softmax %x : (tensor<2x2xf32>) -> tensor<2x2xf32>
  %y = fused.kernel(%a = %flat : tensor<4xf32>, %b = %table : tensor<4xf32>) -> (tensor<4xf32>) {
    %sum = graph.add %a, %b : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
    fused.yield %sum : tensor<4xf32>
  }
  func.return %flat, %soft, %y : tensor<4xf32>, tensor<2x2xf32>, tensor<4xf32>
}

// -----

// Ops of one fuse_group share a kernel.
// CHECK-LABEL: func.func @group(
// CHECK-NEXT:      %a, %b = fused.kernel(%x_1 = %x : tensor<8xf32>, %y_1 = %y : tensor<5xf32>) -> (tensor<8xf32>, tensor<5xf32>) {
// CHECK-NEXT:        %a_1 = graph.exp %x_1 {fuse_group = "both"} : (tensor<8xf32>) -> tensor<8xf32>
// CHECK-NEXT:        %b_1 = graph.tanh %y_1 {fuse_group = "both"} : (tensor<5xf32>) -> tensor<5xf32>
// CHECK-NEXT:        fused.yield %a_1, %b_1 : tensor<8xf32>, tensor<5xf32>
// CHECK-NEXT:      }
// CHECK-NEXT:      func.return %a, %b : tensor<8xf32>, tensor<5xf32>
// CHECK-NEXT:    }
func.func @group(%x: tensor<8xf32>, %y: tensor<5xf32>) -> (tensor<8xf32>, tensor<5xf32>) {
  %a = graph.exp %x {fuse_group = "both"} : (tensor<8xf32>) -> tensor<8xf32>
  %b = graph.tanh %y {fuse_group = "both"} : (tensor<5xf32>) -> tensor<5xf32>
  func.return %a, %b : tensor<8xf32>, tensor<5xf32>
}

// -----

// A library writes every result of its op: the kernel yields them all, read or not.
// CHECK-LABEL: func.func @library(
// CHECK-NEXT:      %v, %p = fused.kernel(%x_1 = %x : tensor<8xf32>) -> (tensor<2xf32>, tensor<2xi64>) {
// CHECK-NEXT:        %v_1, %p_1 = graph.top_k %x_1 {k = 2 : i64} : (tensor<8xf32>) -> (tensor<2xf32>, tensor<2xi64>)
// CHECK-NEXT:        fused.yield %v_1, %p_1 : tensor<2xf32>, tensor<2xi64>
// CHECK-NEXT:      }
// CHECK-NEXT:      func.return %v : tensor<2xf32>
// CHECK-NEXT:    }
func.func @library(%x: tensor<8xf32>) -> tensor<2xf32> {
  %v, %p = graph.top_k %x {k = 2 : i64} : (tensor<8xf32>) -> (tensor<2xf32>, tensor<2xi64>)
  func.return %v : tensor<2xf32>
}

// -----

// What is made from sizes has a kernel where the function gives it; the kernel that reads it has a copy. A number has none.
// CHECK-LABEL: func.func @sizes(
// CHECK-NEXT:      %n = fused.kernel() -> (tensor<1xi64>) {
// CHECK-NEXT:        %n_1 = graph.full {shape = array<i64: 1>, dtype = i64, value = #graph.size<n>} : () -> tensor<1xi64>
// CHECK-NEXT:        fused.yield %n_1 : tensor<1xi64>
// CHECK-NEXT:      }
// CHECK-NEXT:      %three = graph.full {shape = array<i64: 1>, dtype = i64, value = 3 : i64} : () -> tensor<1xi64>
// CHECK-NEXT:      %y = fused.kernel(%x_1 = %x : tensor<?xi64, #graph.shape<n>>) -> (tensor<?xi64, #graph.shape<n>>) {
// CHECK-NEXT:        %n_1 = graph.full {shape = array<i64: 1>, dtype = i64, value = #graph.size<n>} : () -> tensor<1xi64>
// CHECK-NEXT:        %y_1 = graph.add %x_1, %n_1 : {{.*}} -> tensor<?xi64, #graph.shape<n>>
// CHECK-NEXT:        fused.yield %y_1 : tensor<?xi64, #graph.shape<n>>
// CHECK-NEXT:      }
// CHECK-NEXT:      func.return %y, %n, %three
func.func @sizes(%x: tensor<?xi64, #graph.shape<n>>) -> (tensor<?xi64, #graph.shape<n>>, tensor<1xi64>, tensor<1xi64>) {
  %n = graph.full {shape = array<i64: 1>, dtype = i64, value = #graph.size<n>} : () -> tensor<1xi64>
  %three = graph.full {shape = array<i64: 1>, dtype = i64, value = 3} : () -> tensor<1xi64>
  %y = graph.add %x, %n : (tensor<?xi64, #graph.shape<n>>, tensor<1xi64>) -> tensor<?xi64, #graph.shape<n>>
  func.return %y, %n, %three : tensor<?xi64, #graph.shape<n>>, tensor<1xi64>, tensor<1xi64>
}
