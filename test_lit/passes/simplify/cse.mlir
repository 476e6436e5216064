// RUN: fuse-opt %s --split-input-file --cse | filecheck %s
// RUN: fuse-opt %s --split-input-file --cse --cse | filecheck %s

// Equal ops on equal operands are one.
// CHECK-LABEL: func.func @twice(
// CHECK-NEXT:      %a = graph.exp %x : (tensor<8xf32>) -> tensor<8xf32>
// CHECK-NEXT:      %c = graph.tanh %a : (tensor<8xf32>) -> tensor<8xf32>
// CHECK-NEXT:      %y = graph.add %c, %c : (tensor<8xf32>, tensor<8xf32>) -> tensor<8xf32>
// CHECK-NEXT:      func.return %y : tensor<8xf32>
// CHECK-NEXT:    }
func.func @twice(%x: tensor<8xf32>) -> tensor<8xf32> {
  %a = graph.exp %x : (tensor<8xf32>) -> tensor<8xf32>
  %b = graph.exp %x : (tensor<8xf32>) -> tensor<8xf32>
  %c = graph.tanh %a : (tensor<8xf32>) -> tensor<8xf32>
  %d = graph.tanh %b : (tensor<8xf32>) -> tensor<8xf32>
  %y = graph.add %c, %d : (tensor<8xf32>, tensor<8xf32>) -> tensor<8xf32>
  func.return %y : tensor<8xf32>
}

// -----

// Inside a kernel, too.
// CHECK-LABEL: func.func @inside(
// CHECK-NEXT:      %y = fused.kernel(%a = %x : tensor<8xf32>) -> (tensor<8xf32>) {
// CHECK-NEXT:        %b = graph.exp %a : (tensor<8xf32>) -> tensor<8xf32>
// CHECK-NEXT:        %d = graph.multiply %b, %b : (tensor<8xf32>, tensor<8xf32>) -> tensor<8xf32>
// CHECK-NEXT:        fused.yield %d : tensor<8xf32>
// CHECK-NEXT:      }
// CHECK-NEXT:      func.return %y : tensor<8xf32>
// CHECK-NEXT:    }
func.func @inside(%x: tensor<8xf32>) -> tensor<8xf32> {
  %y = fused.kernel(%a = %x : tensor<8xf32>) -> (tensor<8xf32>) {
    %b = graph.exp %a : (tensor<8xf32>) -> tensor<8xf32>
    %c = graph.exp %a : (tensor<8xf32>) -> tensor<8xf32>
    %d = graph.multiply %b, %c : (tensor<8xf32>, tensor<8xf32>) -> tensor<8xf32>
    fused.yield %d : tensor<8xf32>
  }
  func.return %y : tensor<8xf32>
}

// -----

// Not: other properties, other operand orders, or a directive.
// CHECK-LABEL: func.func @different(
// CHECK-NEXT:      %a = graph.gelu %x : (tensor<8xf32>) -> tensor<8xf32>
// CHECK-NEXT:      %b = graph.gelu %x {approximate = "tanh"} : (tensor<8xf32>) -> tensor<8xf32>
// CHECK-NEXT:      %c = graph.gelu %x {no_fuse} : (tensor<8xf32>) -> tensor<8xf32>
// CHECK-NEXT:      %d = graph.subtract %x, %y : (tensor<8xf32>, tensor<8xf32>) -> tensor<8xf32>
// CHECK-NEXT:      %e = graph.subtract %y, %x : (tensor<8xf32>, tensor<8xf32>) -> tensor<8xf32>
// CHECK-NEXT:      %f = graph.multiply %d, %e : (tensor<8xf32>, tensor<8xf32>) -> tensor<8xf32>
// CHECK-NEXT:      func.return %a, %b, %c, %f : tensor<8xf32>, tensor<8xf32>, tensor<8xf32>, tensor<8xf32>
// CHECK-NEXT:    }
func.func @different(%x: tensor<8xf32>, %y: tensor<8xf32>) -> (tensor<8xf32>, tensor<8xf32>, tensor<8xf32>, tensor<8xf32>) {
  %a = graph.gelu %x : (tensor<8xf32>) -> tensor<8xf32>
  %b = graph.gelu %x {approximate = "tanh"} : (tensor<8xf32>) -> tensor<8xf32>
  %c = graph.gelu %x {no_fuse} : (tensor<8xf32>) -> tensor<8xf32>
  %d = graph.subtract %x, %y : (tensor<8xf32>, tensor<8xf32>) -> tensor<8xf32>
  %e = graph.subtract %y, %x : (tensor<8xf32>, tensor<8xf32>) -> tensor<8xf32>
  %f = graph.multiply %d, %e : (tensor<8xf32>, tensor<8xf32>) -> tensor<8xf32>
  func.return %a, %b, %c, %f : tensor<8xf32>, tensor<8xf32>, tensor<8xf32>, tensor<8xf32>
}

// -----

// Operands may be swapped where no bit depends on it; constants are equal by their bits.
// CHECK-LABEL: func.func @swapped(
// CHECK-NEXT:      %zero = graph.constant dense<0.000000e+00> : tensor<f32>
// CHECK-NEXT:      %negative = graph.constant dense<-0.000000e+00> : tensor<f32>
// CHECK-NEXT:      %a = graph.add %x, %y : (tensor<8xf32>, tensor<8xf32>) -> tensor<8xf32>
// CHECK-NEXT:      %c = graph.maximum %x, %y : (tensor<8xf32>, tensor<8xf32>) -> tensor<8xf32>
// CHECK-NEXT:      %d = graph.maximum %y, %x : (tensor<8xf32>, tensor<8xf32>) -> tensor<8xf32>
// CHECK-NEXT:      func.return %a, %a, %c, %d, %zero, %negative : tensor<8xf32>, tensor<8xf32>, tensor<8xf32>, tensor<8xf32>, tensor<f32>, tensor<f32>
// CHECK-NEXT:    }
func.func @swapped(%x: tensor<8xf32>, %y: tensor<8xf32>) -> (tensor<8xf32>, tensor<8xf32>, tensor<8xf32>, tensor<8xf32>, tensor<f32>, tensor<f32>) {
  %zero = graph.constant dense<0.0> : tensor<f32>
  %negative = graph.constant dense<-0.0> : tensor<f32>
  %a = graph.add %x, %y : (tensor<8xf32>, tensor<8xf32>) -> tensor<8xf32>
  %b = graph.add %y, %x : (tensor<8xf32>, tensor<8xf32>) -> tensor<8xf32>
  %c = graph.maximum %x, %y : (tensor<8xf32>, tensor<8xf32>) -> tensor<8xf32>
  %d = graph.maximum %y, %x : (tensor<8xf32>, tensor<8xf32>) -> tensor<8xf32>
  func.return %a, %b, %c, %d, %zero, %negative : tensor<8xf32>, tensor<8xf32>, tensor<8xf32>, tensor<8xf32>, tensor<f32>, tensor<f32>
}
