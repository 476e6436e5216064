// RUN: fuse-opt %s | filecheck %s
// RUN: %roundtrip

// Kernels with and without decisions, of several results, of none, and one that hands an operand through.
func.func @kernels(%x: tensor<8xf32>, %y: tensor<8xf32>) -> (tensor<8xf32>, tensor<8xf32>) {
  %p, %q = fused.kernel(%a = %x : tensor<8xf32>, %b = %y : tensor<8xf32>) -> (tensor<8xf32>, tensor<8xf32>) {
    %0 = graph.add %a, %b : (tensor<8xf32>, tensor<8xf32>) -> tensor<8xf32>
    fused.yield %0, %b : tensor<8xf32>, tensor<8xf32>
  }
  %r = fused.kernel(%a = %p : tensor<8xf32>) -> (tensor<8xf32>) attributes {inplace = array<i64: 0, 0>, schedule = {kind = "pointwise"}, keep_live} {
    %0 = graph.exp %a {must_inplace} : (tensor<8xf32>) -> tensor<8xf32>
    fused.yield %0 : tensor<8xf32>
  }
  %s = fused.kernel() -> (tensor<8xf32>) {
    %0 = graph.constant dense<2.0> : tensor<8xf32>
    fused.yield %0 : tensor<8xf32>
  }
  fused.kernel() -> () {
    fused.yield
  }
  func.return %r, %s : tensor<8xf32>, tensor<8xf32>
}

// CHECK-LABEL: func.func @kernels(%x: tensor<8xf32>, %y: tensor<8xf32>) -> (tensor<8xf32>, tensor<8xf32>) {
// CHECK-NEXT:      %p, %q = fused.kernel(%a = %x : tensor<8xf32>, %b = %y : tensor<8xf32>) -> (tensor<8xf32>, tensor<8xf32>) {
// CHECK-NEXT:        %0 = graph.add %a, %b : (tensor<8xf32>, tensor<8xf32>) -> tensor<8xf32>
// CHECK-NEXT:        fused.yield %0, %b : tensor<8xf32>, tensor<8xf32>
// CHECK-NEXT:      }
// CHECK-NEXT:      %r = fused.kernel(%a = %p : tensor<8xf32>) -> (tensor<8xf32>) attributes {inplace = array<i64: 0, 0>, schedule = {kind = "pointwise"}, keep_live} {
// CHECK-NEXT:        %0 = graph.exp %a {must_inplace} : (tensor<8xf32>) -> tensor<8xf32>
// CHECK-NEXT:        fused.yield %0 : tensor<8xf32>
// CHECK-NEXT:      }
// CHECK-NEXT:      %s = fused.kernel() -> (tensor<8xf32>) {
// CHECK-NEXT:        %0 = graph.constant dense<2.000000e+00> : tensor<8xf32>
// CHECK-NEXT:        fused.yield %0 : tensor<8xf32>
// CHECK-NEXT:      }
// CHECK-NEXT:      fused.kernel() -> () {
// CHECK-NEXT:        fused.yield
// CHECK-NEXT:      }
// CHECK-NEXT:      func.return %r, %s : tensor<8xf32>, tensor<8xf32>
// CHECK-NEXT:    }

// -----

// CHECK-LABEL: func.func @partition(
// CHECK-NEXT:      %r = fused.partition(%a = %x : tensor<8xf32>) -> (tensor<8xf32>) attributes {backend = "mine", memory = "workspace", workspace = 64 : i64, workspace_slot = 0 : i64} {
func.func @partition(%x: tensor<8xf32>) -> tensor<8xf32> {
  %r = fused.partition(%a = %x : tensor<8xf32>) -> (tensor<8xf32>) attributes {backend = "mine", memory = "workspace", workspace = 64 : i64, workspace_slot = 0 : i64} {
    %0 = graph.exp %a : (tensor<8xf32>) -> tensor<8xf32>
    fused.yield %0 : tensor<8xf32>
  }
  func.return %r : tensor<8xf32>
}
