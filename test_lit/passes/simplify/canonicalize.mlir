// RUN: fuse-opt %s --split-input-file --canonicalize | filecheck %s
// RUN: fuse-opt %s --split-input-file --canonicalize --canonicalize | filecheck %s

// Neutral elements, double negation, and views of views.
// CHECK-LABEL: func.func @simpler(
// CHECK-NEXT:      %c = graph.reshape %x {shape = array<i64: 4, 8>} : (tensor<8x4xf32>) -> tensor<4x8xf32>
// CHECK-NEXT:      func.return %x, %x, %c : tensor<8x4xf32>, tensor<8x4xf32>, tensor<4x8xf32>
// CHECK-NEXT:    }
func.func @simpler(%x: tensor<8x4xf32>) -> (tensor<8x4xf32>, tensor<8x4xf32>, tensor<4x8xf32>) {
  %one = graph.constant dense<1.0> : tensor<f32>
  %a = graph.multiply %x, %one : (tensor<8x4xf32>, tensor<f32>) -> tensor<8x4xf32>
  %n = graph.negative %x : (tensor<8x4xf32>) -> tensor<8x4xf32>
  %b = graph.negative %n : (tensor<8x4xf32>) -> tensor<8x4xf32>
  %r = graph.reshape %x {shape = array<i64: 32>} : (tensor<8x4xf32>) -> tensor<32xf32>
  %c = graph.reshape %r {shape = array<i64: 4, 8>} : (tensor<32xf32>) -> tensor<4x8xf32>
  func.return %a, %b, %c : tensor<8x4xf32>, tensor<8x4xf32>, tensor<4x8xf32>
}

// -----

// Two transposes that undo each other are none; a cast to the same type is none.
// CHECK-LABEL: func.func @nothing(
// CHECK-NEXT:      func.return %x : tensor<8x4xf32>
// CHECK-NEXT:    }
func.func @nothing(%x: tensor<8x4xf32>) -> tensor<8x4xf32> {
  %t = graph.permute_dims %x {axes = array<i64: 1, 0>} : (tensor<8x4xf32>) -> tensor<4x8xf32>
  %u = graph.permute_dims %t {axes = array<i64: 1, 0>} : (tensor<4x8xf32>) -> tensor<8x4xf32>
  %y = graph.astype %u {dtype = f32} : (tensor<8x4xf32>) -> tensor<8x4xf32>
  func.return %y : tensor<8x4xf32>
}

// -----

// Not: x + 0.0 makes +0.0 of -0.0, and x * 0.0 keeps NaN.
// CHECK-LABEL: func.func @inexact(
// CHECK-NEXT:      %zero = graph.constant dense<0.000000e+00> : tensor<f32>
// CHECK-NEXT:      %a = graph.add %x, %zero : (tensor<8xf32>, tensor<f32>) -> tensor<8xf32>
// CHECK-NEXT:      %b = graph.multiply %x, %zero : (tensor<8xf32>, tensor<f32>) -> tensor<8xf32>
// CHECK-NEXT:      func.return %a, %b : tensor<8xf32>, tensor<8xf32>
// CHECK-NEXT:    }
func.func @inexact(%x: tensor<8xf32>) -> (tensor<8xf32>, tensor<8xf32>) {
  %zero = graph.constant dense<0.0> : tensor<f32>
  %a = graph.add %x, %zero : (tensor<8xf32>, tensor<f32>) -> tensor<8xf32>
  %b = graph.multiply %x, %zero : (tensor<8xf32>, tensor<f32>) -> tensor<8xf32>
  func.return %a, %b : tensor<8xf32>, tensor<8xf32>
}

// -----

// Not: the operand is smaller than the result, or a directive names the op.
// CHECK-LABEL: func.func @kept(
// CHECK-NEXT:      %ones = graph.constant dense<1.000000e+00> : tensor<8x1xf32>
// CHECK-NEXT:      %one = graph.constant dense<1.000000e+00> : tensor<f32>
// CHECK-NEXT:      %a = graph.multiply %x, %ones : (tensor<4xf32>, tensor<8x1xf32>) -> tensor<8x4xf32>
// CHECK-NEXT:      %b = graph.multiply %x, %one {keep_live} : (tensor<4xf32>, tensor<f32>) -> tensor<4xf32>
// CHECK-NEXT:      func.return %a, %b : tensor<8x4xf32>, tensor<4xf32>
// CHECK-NEXT:    }
func.func @kept(%x: tensor<4xf32>) -> (tensor<8x4xf32>, tensor<4xf32>) {
  %ones = graph.constant dense<1.0> : tensor<8x1xf32>
  %one = graph.constant dense<1.0> : tensor<f32>
  %a = graph.multiply %x, %ones : (tensor<4xf32>, tensor<8x1xf32>) -> tensor<8x4xf32>
  %b = graph.multiply %x, %one {keep_live} : (tensor<4xf32>, tensor<f32>) -> tensor<4xf32>
  func.return %a, %b : tensor<8x4xf32>, tensor<4xf32>
}

// -----

// Powers, quotients and conversions that another op gives with the same bits.
// CHECK-LABEL: func.func @cheaper(
// CHECK-NEXT:      %a = graph.square %x : (tensor<8xf32>) -> tensor<8xf32>
// CHECK-NEXT:      %0 = graph.constant dense<2.500000e-01> : tensor<f32>
// CHECK-NEXT:      %b = graph.multiply %x, %0 : (tensor<8xf32>, tensor<f32>) -> tensor<8xf32>
// CHECK-NEXT:      %c = graph.astype %i {dtype = i64} : (tensor<8xi8>) -> tensor<8xi64>
// CHECK-NEXT:      func.return %a, %b, %c, %h : tensor<8xf32>, tensor<8xf32>, tensor<8xi64>, tensor<8xf16>
// CHECK-NEXT:    }
func.func @cheaper(%x: tensor<8xf32>, %i: tensor<8xi8>, %h: tensor<8xf16>) -> (tensor<8xf32>, tensor<8xf32>, tensor<8xi64>, tensor<8xf16>) {
  %two = graph.constant dense<2.0> : tensor<f32>
  %four = graph.constant dense<4.0> : tensor<f32>
  %a = graph.pow %x, %two : (tensor<8xf32>, tensor<f32>) -> tensor<8xf32>
  %b = graph.divide %x, %four : (tensor<8xf32>, tensor<f32>) -> tensor<8xf32>
  %w = graph.astype %i {dtype = i32} : (tensor<8xi8>) -> tensor<8xi32>
  %c = graph.astype %w {dtype = i64} : (tensor<8xi32>) -> tensor<8xi64>
  %v = graph.astype %h {dtype = f32} : (tensor<8xf16>) -> tensor<8xf32>
  %d = graph.astype %v {dtype = f16} : (tensor<8xf32>) -> tensor<8xf16>
  func.return %a, %b, %c, %d : tensor<8xf32>, tensor<8xf32>, tensor<8xi64>, tensor<8xf16>
}

// -----

// Not: f16 has fewer digits, NaN is not less or equal and not greater, and a third is rounded.
// CHECK-LABEL: func.func @exact(
// CHECK-NEXT:      %three = graph.constant dense<3.000000e+00> : tensor<f32>
// CHECK-NEXT:      %h = graph.astype %x {dtype = f16} : (tensor<8xf32>) -> tensor<8xf16>
// CHECK-NEXT:      %a = graph.astype %h {dtype = f32} : (tensor<8xf16>) -> tensor<8xf32>
// CHECK-NEXT:      %l = graph.less_equal %x, %a : (tensor<8xf32>, tensor<8xf32>) -> tensor<8xi1>
// CHECK-NEXT:      %b = graph.logical_not %l : (tensor<8xi1>) -> tensor<8xi1>
// CHECK-NEXT:      %c = graph.divide %x, %three : (tensor<8xf32>, tensor<f32>) -> tensor<8xf32>
// CHECK-NEXT:      func.return %a, %b, %c : tensor<8xf32>, tensor<8xi1>, tensor<8xf32>
// CHECK-NEXT:    }
func.func @exact(%x: tensor<8xf32>) -> (tensor<8xf32>, tensor<8xi1>, tensor<8xf32>) {
  %three = graph.constant dense<3.0> : tensor<f32>
  %h = graph.astype %x {dtype = f16} : (tensor<8xf32>) -> tensor<8xf16>
  %a = graph.astype %h {dtype = f32} : (tensor<8xf16>) -> tensor<8xf32>
  %l = graph.less_equal %x, %a : (tensor<8xf32>, tensor<8xf32>) -> tensor<8xi1>
  %b = graph.logical_not %l : (tensor<8xi1>) -> tensor<8xi1>
  %c = graph.divide %x, %three : (tensor<8xf32>, tensor<f32>) -> tensor<8xf32>
  func.return %a, %b, %c : tensor<8xf32>, tensor<8xi1>, tensor<8xf32>
}

// -----

// What is repeated is read where it lies; the largest of what is repeated is one of it; matrices are transposed on the way.
// CHECK-LABEL: func.func @repeated(
// CHECK-NEXT:      %a = graph.add %x, %y : (tensor<4x3xf32>, tensor<3xf32>) -> tensor<4x3xf32>
// CHECK-NEXT:      %m = graph.matmul %x, %x {transpose_lhs = true} : (tensor<4x3xf32>, tensor<4x3xf32>) -> tensor<3x3xf32>
// CHECK-NEXT:      func.return %a, %y, %m : tensor<4x3xf32>, tensor<3xf32>, tensor<3x3xf32>
// CHECK-NEXT:    }
func.func @repeated(%x: tensor<4x3xf32>, %y: tensor<3xf32>) -> (tensor<4x3xf32>, tensor<3xf32>, tensor<3x3xf32>) {
  %b = graph.broadcast_to %y {shape = array<i64: 4, 3>} : (tensor<3xf32>) -> tensor<4x3xf32>
  %a = graph.add %x, %b : (tensor<4x3xf32>, tensor<4x3xf32>) -> tensor<4x3xf32>
  %r = graph.max %b {axes = array<i64: 0>} : (tensor<4x3xf32>) -> tensor<3xf32>
  %t = graph.permute_dims %x {axes = array<i64: 1, 0>} : (tensor<4x3xf32>) -> tensor<3x4xf32>
  %m = graph.matmul %t, %x : (tensor<3x4xf32>, tensor<4x3xf32>) -> tensor<3x3xf32>
  func.return %a, %r, %m : tensor<4x3xf32>, tensor<3xf32>, tensor<3x3xf32>
}

// -----

// Zeros around the operand of a convolution are its pads. Not: other numbers, zeros of channels, what is taken away.
// CHECK-LABEL: func.func @padded(
// CHECK:           %a = graph.conv %x, %w {strides = array<i64: 2>, pads = array<i64: 1, 3>} : (tensor<1x2x8xf32>, tensor<3x2x3xf32>) -> tensor<1x3x5xf32>
// CHECK:           %b = graph.conv %o, %w : (tensor<1x2x9xf32>, tensor<3x2x3xf32>) -> tensor<1x3x7xf32>
// CHECK:           %d = graph.conv %c, %w : (tensor<1x2x8xf32>, tensor<3x2x3xf32>) -> tensor<1x3x6xf32>
// CHECK:           %f = graph.conv %e, %w : (tensor<1x2x7xf32>, tensor<3x2x3xf32>) -> tensor<1x3x5xf32>
func.func @padded(%x: tensor<1x2x8xf32>, %y: tensor<1x1x8xf32>, %w: tensor<3x2x3xf32>) -> (tensor<1x3x5xf32>, tensor<1x3x7xf32>, tensor<1x3x6xf32>, tensor<1x3x5xf32>) {
  %p = graph.pad %x {pads = array<i64: 0, 0, 1, 0, 0, 2>} : (tensor<1x2x8xf32>) -> tensor<1x2x11xf32>
  %a = graph.conv %p, %w {strides = array<i64: 2>, pads = array<i64: 0, 1>} : (tensor<1x2x11xf32>, tensor<3x2x3xf32>) -> tensor<1x3x5xf32>
  %o = graph.pad %x {pads = array<i64: 0, 0, 1, 0, 0, 0>, value = 1.0 : f32} : (tensor<1x2x8xf32>) -> tensor<1x2x9xf32>
  %b = graph.conv %o, %w : (tensor<1x2x9xf32>, tensor<3x2x3xf32>) -> tensor<1x3x7xf32>
  %c = graph.pad %y {pads = array<i64: 0, 1, 0, 0, 0, 0>} : (tensor<1x1x8xf32>) -> tensor<1x2x8xf32>
  %d = graph.conv %c, %w : (tensor<1x2x8xf32>, tensor<3x2x3xf32>) -> tensor<1x3x6xf32>
  %e = graph.pad %x {pads = array<i64: 0, 0, -1, 0, 0, 0>} : (tensor<1x2x8xf32>) -> tensor<1x2x7xf32>
  %f = graph.conv %e, %w : (tensor<1x2x7xf32>, tensor<3x2x3xf32>) -> tensor<1x3x5xf32>
  func.return %a, %b, %d, %f : tensor<1x3x5xf32>, tensor<1x3x7xf32>, tensor<1x3x6xf32>, tensor<1x3x5xf32>
}

// -----

// A product that is transposed is the product of the transposed operands in the other order; one that others read, or of a
// stack and one matrix, stays.

// CHECK-LABEL: @transposed_products
// CHECK:       %t = graph.matmul %w, %x {transpose_rhs = true} :
// CHECK-NEXT:  %p = graph.matmul %x, %w {transpose_rhs = true} :
// CHECK-NEXT:  %u = graph.permute_dims %p {axes = array<i64: 1, 0>} :
// CHECK-NEXT:  %q = graph.matmul %s, %w {transpose_rhs = true} :
// CHECK-NEXT:  %v = graph.permute_dims %q {axes = array<i64: 0, 2, 1>} :

func.func @transposed_products(%x: tensor<3x4xf32>, %w: tensor<5x4xf32>, %s: tensor<2x3x4xf32>) -> (tensor<5x3xf32>, tensor<3x5xf32>, tensor<5x3xf32>, tensor<2x5x3xf32>) {
  %0 = graph.matmul %x, %w {transpose_rhs = true} : (tensor<3x4xf32>, tensor<5x4xf32>) -> tensor<3x5xf32>
  %t = graph.permute_dims %0 {axes = array<i64: 1, 0>} : (tensor<3x5xf32>) -> tensor<5x3xf32>
  %p = graph.matmul %x, %w {transpose_rhs = true} : (tensor<3x4xf32>, tensor<5x4xf32>) -> tensor<3x5xf32>
  %u = graph.permute_dims %p {axes = array<i64: 1, 0>} : (tensor<3x5xf32>) -> tensor<5x3xf32>
  %q = graph.matmul %s, %w {transpose_rhs = true} : (tensor<2x3x4xf32>, tensor<5x4xf32>) -> tensor<2x3x5xf32>
  %v = graph.permute_dims %q {axes = array<i64: 0, 2, 1>} : (tensor<2x3x5xf32>) -> tensor<2x5x3xf32>
  func.return %t, %p, %u, %v : tensor<5x3xf32>, tensor<3x5xf32>, tensor<5x3xf32>, tensor<2x5x3xf32>
}

// -----

// A box that begins at known places, which are limited to where it fits, is a slice; one that data places stays.

// CHECK-LABEL: @known_boxes
// CHECK:       = graph.slice %x {starts = array<i64: 0, 6>, stops = array<i64: 4, 9>, steps = array<i64: 1, 1>} :
// CHECK-NEXT:  = graph.slice_scatter %x, %u {starts = array<i64: 0, 6>, stops = array<i64: 4, 9>, steps = array<i64: 1, 1>} :
// CHECK-NEXT:  = graph.dynamic_slice %x, %i {sizes = array<i64: 2>} :

func.func @known_boxes(%x: tensor<4x9xf32>, %u: tensor<4x3xf32>, %i: tensor<i32>) -> (tensor<4x3xf32>, tensor<4x9xf32>, tensor<2x9xf32>) {
  %c = graph.full {dtype = i64, shape = array<i64>, value = 7 : i64} : () -> tensor<i64>
  %0 = graph.dynamic_slice %x, %c {axes = array<i64: 1>, sizes = array<i64: 3>} : (tensor<4x9xf32>, tensor<i64>) -> tensor<4x3xf32>
  %1 = graph.dynamic_update_slice %x, %u, %c {axes = array<i64: 1>} : (tensor<4x9xf32>, tensor<4x3xf32>, tensor<i64>) -> tensor<4x9xf32>
  %2 = graph.dynamic_slice %x, %i {sizes = array<i64: 2>} : (tensor<4x9xf32>, tensor<i32>) -> tensor<2x9xf32>
  func.return %0, %1, %2 : tensor<4x3xf32>, tensor<4x9xf32>, tensor<2x9xf32>
}
