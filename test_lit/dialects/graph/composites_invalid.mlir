// RUN: fuse-opt %s --verify-diagnostics --split-input-file | filecheck %s

func.func @f(%x: tensor<4x3xf32>) {
  %r = graph.softmax %x {axis = 2 : i64} : (tensor<4x3xf32>) -> tensor<4x3xf32>
  func.return
}

// CHECK: 'graph.softmax' axis 2 is out of range for rank 2; expected -2 <= axis < 2

// -----

func.func @f(%x: tensor<4x3xf32>, %y: tensor<4xf32>) {
  %r = graph.log_softmax_backward %x, %y : (tensor<4x3xf32>, tensor<4xf32>) -> tensor<4x3xf32>
  func.return
}

// CHECK: 'graph.log_softmax_backward' operand 'y': expected shape [4, 3], got [4]

// -----

func.func @f(%i: tensor<4x3xi32>) {
  %r = graph.log_softmax %i : (tensor<4x3xi32>) -> tensor<4x3xi32>
  func.return
}

// CHECK: 'graph.log_softmax' operand 0: expected floats of one type, got 'tensor<4x3xi32>'; insert graph.astype

// -----

func.func @f(%x: tensor<4x3xf32>, %h: tensor<4x3xf16>) {
  %r = graph.softmax_backward %x, %h : (tensor<4x3xf32>, tensor<4x3xf16>) -> tensor<4x3xf32>
  func.return
}

// CHECK: 'graph.softmax_backward' operand 1: expected floats of one type, got 'tensor<4x3xf16>'; insert graph.astype

// -----

func.func @f(%f: tensor<4x3xf8E4M3FN>) {
  %r = graph.softmax %f : (tensor<4x3xf8E4M3FN>) -> tensor<4x3xf8E4M3FN>
  func.return
}

// CHECK: 'graph.softmax' f8E4M3FN is a storage type and it is computed with: insert graph.astype to f32 before, and back after

// -----

func.func @f(%x: tensor<4x3xf32>, %y: tensor<4xf32>) {
  %r = graph.layer_norm %x, %y : (tensor<4x3xf32>, tensor<4xf32>) -> tensor<4x3xf32>
  func.return
}

// CHECK: 'graph.layer_norm' operand 'scale': expected shape [3], got [4]

// -----

func.func @f(%x: tensor<4x3xf32>, %z: tensor<3xf32>) {
  %r = graph.layer_norm %x, %z, %z, %z : (tensor<4x3xf32>, tensor<3xf32>, tensor<3xf32>, tensor<3xf32>) -> tensor<4x3xf32>
  func.return
}

// CHECK: 'graph.layer_norm' expected at most the operands scale, bias behind x, got 3

// -----

func.func @f(%z: tensor<3xf32>, %x: tensor<4x3xf32>) {
  %r:3 = graph.layer_norm_backward %z, %x : (tensor<3xf32>, tensor<4x3xf32>) -> (tensor<4x3xf32>, tensor<3xf32>, tensor<3xf32>)
  func.return
}

// CHECK: 'graph.layer_norm_backward' operand 'grad': expected shape [4, 3], got [3]

// -----

func.func @f(%x: tensor<4x3xf32>) {
  %r = graph.lp_normalize %x {p = 3 : i64} : (tensor<4x3xf32>) -> tensor<4x3xf32>
  func.return
}

// CHECK: 'graph.lp_normalize' attribute 'p': expected 1 or 2, got 3

// -----

func.func @f(%d: tensor<4x?xf32>) {
  %r = graph.local_response_norm %d {size = 3 : i64} : (tensor<4x?xf32>) -> tensor<4x?xf32>
  func.return
}

// CHECK: 'graph.local_response_norm' expected x [N, C, ...] with a static number of channels, got [4, ?]

// -----

func.func @f(%x: tensor<4x3xf32>) {
  %r = graph.local_response_norm %x {size = 0 : i64} : (tensor<4x3xf32>) -> tensor<4x3xf32>
  func.return
}

// CHECK: 'graph.local_response_norm' attribute 'size': expected a positive integer, got 0

// -----

func.func @f(%x: tensor<4x3xf32>, %z: tensor<3xf32>, %y: tensor<4xf32>) {
  %r = graph.batch_norm %x, %z, %z, %z, %y : (tensor<4x3xf32>, tensor<3xf32>, tensor<3xf32>, tensor<3xf32>, tensor<4xf32>) -> tensor<4x3xf32>
  func.return
}

// CHECK: 'graph.batch_norm' operand 'variance': expected shape [3], got [4]

// -----

func.func @f(%x: tensor<4x3xf32>) {
  %r = graph.group_norm %x {num_groups = 2 : i64} : (tensor<4x3xf32>) -> tensor<4x3xf32>
  func.return
}

// CHECK: 'graph.group_norm' attribute 'num_groups': expected a positive divisor of the 3 channels, got 2

// -----

func.func @f(%y: tensor<4xf32>) {
  %r = graph.group_norm %y {num_groups = 1 : i64} : (tensor<4xf32>) -> tensor<4xf32>
  func.return
}

// CHECK: 'graph.group_norm' expected x [N, C, ...] of rank 2 or more, got [4]

// -----

func.func @f(%x: tensor<4x3xf32>, %y: tensor<4xf32>) {
  %r = graph.mse_loss %x, %y : (tensor<4x3xf32>, tensor<4xf32>) -> tensor<f32>
  func.return
}

// CHECK: 'graph.mse_loss' operand 'target': expected shape [4, 3], got [4]

// -----

func.func @f(%x: tensor<4x3xf32>) {
  %r = graph.mse_loss %x, %x {reduction = "median"} : (tensor<4x3xf32>, tensor<4x3xf32>) -> tensor<f32>
  func.return
}

// CHECK: 'graph.mse_loss' attribute 'reduction': expected "mean" or "sum" or "none", got "median"

// -----

func.func @f(%x: tensor<4x3xf32>) {
  %r = graph.mse_loss_backward %x, %x, %x : (tensor<4x3xf32>, tensor<4x3xf32>, tensor<4x3xf32>) -> tensor<4x3xf32>
  func.return
}

// CHECK: 'graph.mse_loss_backward' operand 'grad': expected shape [], got [4, 3]

// -----

func.func @f(%x: tensor<4x3xf32>) {
  %r = graph.smooth_l1_loss %x, %x {beta = -1.0 : f64} : (tensor<4x3xf32>, tensor<4x3xf32>) -> tensor<f32>
  func.return
}

// CHECK: 'graph.smooth_l1_loss' attribute 'beta': expected a number >= 0, got -1.0

// -----

func.func @f(%x: tensor<4x3xf32>) {
  %r = graph.huber_loss %x, %x {delta = 0.0 : f64} : (tensor<4x3xf32>, tensor<4x3xf32>) -> tensor<f32>
  func.return
}

// CHECK: 'graph.huber_loss' attribute 'delta': expected a number > 0, got 0.0

// -----

func.func @f(%x: tensor<4x3xf32>, %y: tensor<4xf32>) {
  %r = graph.cross_entropy %x, %y : (tensor<4x3xf32>, tensor<4xf32>) -> tensor<f32>
  func.return
}

// CHECK: 'graph.cross_entropy' operand 'targets': expected classes of i32 or i64, got 'tensor<4xf32>'

// -----

func.func @f(%e: tensor<4x0xf32>, %t: tensor<4xi64>) {
  %r = graph.cross_entropy %e, %t : (tensor<4x0xf32>, tensor<4xi64>) -> tensor<f32>
  func.return
}

// CHECK: 'graph.cross_entropy' axis 1 of [4, 0]: expected at least one class

// -----

func.func @f(%x: tensor<4x3xf32>, %t: tensor<4xi64>, %z: tensor<3xf32>) {
  %r = graph.cross_entropy %x, %t, %z, %z : (tensor<4x3xf32>, tensor<4xi64>, tensor<3xf32>, tensor<3xf32>) -> tensor<f32>
  func.return
}

// CHECK: 'graph.cross_entropy' expected at most the operand weight behind targets, got 2

// -----

func.func @f(%x: tensor<4x3xf32>, %t: tensor<4xi64>, %y: tensor<4xf32>) {
  %r = graph.cross_entropy %x, %t, %y : (tensor<4x3xf32>, tensor<4xi64>, tensor<4xf32>) -> tensor<f32>
  func.return
}

// CHECK: 'graph.cross_entropy' operand 'weight': expected shape [3], got [4]

// -----

func.func @f(%x: tensor<4x3xf32>, %t: tensor<4xi64>) {
  %r = graph.cross_entropy %x, %t {label_smoothing = 2.0 : f64} : (tensor<4x3xf32>, tensor<4xi64>) -> tensor<f32>
  func.return
}

// CHECK: 'graph.cross_entropy' attribute 'label_smoothing': expected 0 to 1, got 2.0

// -----

func.func @f(%q: tensor<2x5x3xf32>, %i: tensor<4x3xi32>) {
  %r = graph.nll_loss %q, %i {ignore_index = 4294967296 : i64} : (tensor<2x5x3xf32>, tensor<4x3xi32>) -> tensor<f32>
  func.return
}

// CHECK: 'graph.nll_loss' attribute 'ignore_index': expected -2147483648 to 2147483647 for elements of i32, got 4294967296

// -----

func.func @f(%y: tensor<4xf32>, %x: tensor<4x3xf32>, %t: tensor<4xi64>) {
  %r = graph.cross_entropy_backward %y, %x, %t : (tensor<4xf32>, tensor<4x3xf32>, tensor<4xi64>) -> tensor<4x3xf32>
  func.return
}

// CHECK: 'graph.cross_entropy_backward' operand 'grad': expected shape [], got [4]

// -----

func.func @f(%q: tensor<2x5x3xf32>, %k: tensor<2x7x3xf32>, %w: tensor<5x3xf32>) {
  %r = graph.scaled_dot_product_attention %q, %k, %w : (tensor<2x5x3xf32>, tensor<2x7x3xf32>, tensor<5x3xf32>) -> tensor<2x5x3xf32>
  func.return
}

// CHECK: 'graph.scaled_dot_product_attention' expected q [..., L, E], k [..., S, E] and v [..., S, Ev] of one rank, got [2, 5, 3], [2, 7, 3], [5, 3]

// -----

func.func @f(%q: tensor<2x5x3xf32>, %k: tensor<2x7x3xf32>) {
  %r = graph.scaled_dot_product_attention %q, %k, %q : (tensor<2x5x3xf32>, tensor<2x7x3xf32>, tensor<2x5x3xf32>) -> tensor<2x5x3xf32>
  func.return
}

// CHECK: 'graph.scaled_dot_product_attention' q [2, 5, 3] and k [2, 7, 3] must have the same last extent, k and v [2, 5, 3] the same last but one

// -----

func.func @f(%G3: tensor<3x5x3xf32>, %H2: tensor<2x5x3xf32>) {
  %r = graph.scaled_dot_product_attention %G3, %H2, %H2 {enable_gqa = true} : (tensor<3x5x3xf32>, tensor<2x5x3xf32>, tensor<2x5x3xf32>) -> tensor<3x5x3xf32>
  func.return
}

// CHECK: 'graph.scaled_dot_product_attention' expected k and v with heads that divide those of q, got [3, 5, 3], [2, 5, 3], [2, 5, 3]; see 'enable_gqa'

// -----

func.func @f(%G3: tensor<3x5x3xf32>, %H2: tensor<2x5x3xf32>) {
  %r = graph.scaled_dot_product_attention %G3, %H2, %H2 : (tensor<3x5x3xf32>, tensor<2x5x3xf32>, tensor<2x5x3xf32>) -> tensor<3x5x3xf32>
  func.return
}

// CHECK: 'graph.scaled_dot_product_attention' expected equal extents before the last two, got [3, 5, 3], [2, 5, 3], [2, 5, 3]; see 'enable_gqa'

// -----

func.func @f(%q: tensor<2x5x3xf32>, %k: tensor<2x7x3xf32>, %b: tensor<4x3xi1>) {
  %r = graph.scaled_dot_product_attention %q, %k, %k, %b : (tensor<2x5x3xf32>, tensor<2x7x3xf32>, tensor<2x7x3xf32>, tensor<4x3xi1>) -> tensor<2x5x3xf32>
  func.return
}

// CHECK: 'graph.scaled_dot_product_attention' operand 'mask': expected a shape that broadcasts to [2, 5, 7], got [4, 3]

// -----

func.func @f(%q: tensor<2x5x3xf32>, %k: tensor<2x7x3xf32>, %z: tensor<3xf32>) {
  %r = graph.scaled_dot_product_attention %q, %k, %k, %z, %z : (tensor<2x5x3xf32>, tensor<2x7x3xf32>, tensor<2x7x3xf32>, tensor<3xf32>, tensor<3xf32>) -> tensor<2x5x3xf32>
  func.return
}

// CHECK: 'graph.scaled_dot_product_attention' expected at most the operands mask and offset behind v, got 2 masks

// -----

func.func @f(%q: tensor<2x5x3xf32>, %k: tensor<2x7x3xf32>) {
  %r = graph.scaled_dot_product_attention %q, %k, %k {dropout_p = 0.5 : f64} : (tensor<2x5x3xf32>, tensor<2x7x3xf32>, tensor<2x7x3xf32>) -> tensor<2x5x3xf32>
  func.return
}

// CHECK: 'graph.scaled_dot_product_attention' expected 'dropout_p' and 'seed' together, or neither

// -----

func.func @f(%q: tensor<2x5x3xf32>, %k: tensor<2x7x3xf32>, %o: tensor<i64>) {
  %r = graph.scaled_dot_product_attention %q, %k, %k, %o : (tensor<2x5x3xf32>, tensor<2x7x3xf32>, tensor<2x7x3xf32>, tensor<i64>) -> tensor<2x5x3xf32>
  func.return
}

// CHECK: 'graph.scaled_dot_product_attention' expected no operand 'offset' where nothing is dropped, see 'dropout_p'

// -----

func.func @f(%q: tensor<2x5x3xf32>, %k: tensor<2x7x3xf32>) {
  %r = graph.scaled_dot_product_attention %q, %k, %k {dropout_p = 1.0 : f64, seed = 1 : i64} : (tensor<2x5x3xf32>, tensor<2x7x3xf32>, tensor<2x7x3xf32>) -> tensor<2x5x3xf32>
  func.return
}

// CHECK: 'graph.scaled_dot_product_attention' attribute 'dropout_p': expected 0 or more and less than 1, got 1.0

// -----

func.func @f(%q: tensor<2x5x3xf32>, %k: tensor<2x7x3xf32>, %t: tensor<4xi64>) {
  %r = graph.scaled_dot_product_attention %q, %k, %k, %t : (tensor<2x5x3xf32>, tensor<2x7x3xf32>, tensor<2x7x3xf32>, tensor<4xi64>) -> tensor<2x5x3xf32>
  func.return
}

// CHECK: 'graph.scaled_dot_product_attention' operand 3: expected floats of one type, got 'tensor<4xi64>'; insert graph.astype

// -----

func.func @f(%d: tensor<4x?xf32>, %z: tensor<3xf32>) {
  %r = graph.rotary_embedding %d, %z, %z : (tensor<4x?xf32>, tensor<3xf32>, tensor<3xf32>) -> tensor<4x?xf32>
  func.return
}

// CHECK: 'graph.rotary_embedding' expected x [..., D] with a static last extent, got [4, ?]

// -----

func.func @f(%x: tensor<4x3xf32>, %z: tensor<3xf32>) {
  %r = graph.rotary_embedding %x, %z, %z : (tensor<4x3xf32>, tensor<3xf32>, tensor<3xf32>) -> tensor<4x3xf32>
  func.return
}

// CHECK: 'graph.rotary_embedding' attribute 'rotary_dim': expected an even number of 0 to 3, got 3

// -----

func.func @f(%x: tensor<4x3xf32>, %y: tensor<4xf32>) {
  %r = graph.rotary_embedding %x, %y, %y {rotary_dim = 2 : i64} : (tensor<4x3xf32>, tensor<4xf32>, tensor<4xf32>) -> tensor<4x3xf32>
  func.return
}

// CHECK: 'graph.rotary_embedding' operand 'cos': expected a shape that broadcasts to [4, 1], got [4]

// -----

func.func @f(%x: tensor<4x3xf32>) {
  %r = graph.dropout %x, %x : (tensor<4x3xf32>, tensor<4x3xf32>) -> tensor<4x3xf32>
  func.return
}

// CHECK: 'graph.dropout' operand 'mask': expected elements of i1, got 'tensor<4x3xf32>'

// -----

func.func @f(%x: tensor<4x3xf32>, %b: tensor<4x3xi1>) {
  %r = graph.dropout %x, %b {p = 1.5 : f64} : (tensor<4x3xf32>, tensor<4x3xi1>) -> tensor<4x3xf32>
  func.return
}

// CHECK: 'graph.dropout' attribute 'p': expected 0 to 1, got 1.5

// -----

func.func @f(%x: tensor<4x3xf32>, %h: tensor<4x3xf16>, %c: tensor<ui8>) {
  %r = graph.quantize_linear %x, %h, %c : (tensor<4x3xf32>, tensor<4x3xf16>, tensor<ui8>) -> tensor<4x3xi8>
  func.return
}

// CHECK: 'graph.quantize_linear' expected floats of one type, got 'tensor<4x3xf32>' and 'tensor<4x3xf16>'; insert graph.astype

// -----

func.func @f(%x: tensor<4x3xf32>, %s: tensor<f32>) {
  %r = graph.quantize_linear %x, %s, %s : (tensor<4x3xf32>, tensor<f32>, tensor<f32>) -> tensor<4x3xi8>
  func.return
}

// CHECK: 'graph.quantize_linear' operand 'zero_point': expected elements of i8, ui8, i16, ui16, f8E4M3FN or f8E5M2, got 'tensor<f32>'

// -----

func.func @f(%x: tensor<4x3xf32>, %y: tensor<4xf32>, %c: tensor<ui8>) {
  %r = graph.quantize_linear %x, %y, %c : (tensor<4x3xf32>, tensor<4xf32>, tensor<ui8>) -> tensor<4x3xi8>
  func.return
}

// CHECK: 'graph.quantize_linear' operand 'scale': expected shape [3], got [4]

// -----

func.func @f(%x: tensor<4x3xf32>, %z: tensor<3xf32>, %c: tensor<ui8>) {
  %r = graph.quantize_linear %x, %z, %c : (tensor<4x3xf32>, tensor<3xf32>, tensor<ui8>) -> tensor<4x3xi8>
  func.return
}

// CHECK: 'graph.quantize_linear' operand 'zero_point': expected shape [3], got []

// -----

func.func @f(%s: tensor<f32>, %z: tensor<3xf32>, %c: tensor<ui8>) {
  %r = graph.quantize_linear %s, %z, %c : (tensor<f32>, tensor<3xf32>, tensor<ui8>) -> tensor<ui8>
  func.return
}

// CHECK: 'graph.quantize_linear' operand 'scale': expected rank 0 for a scalar, got [3]

// -----

func.func @f(%x: tensor<4x3xf32>, %s: tensor<f32>) {
  %r = graph.dequantize_linear %x, %s : (tensor<4x3xf32>, tensor<f32>) -> tensor<4x3xf32>
  func.return
}

// CHECK: 'graph.dequantize_linear' operand 'x': expected elements of i8, ui8, i16, ui16, i32, f8E4M3FN or f8E5M2, got 'tensor<4x3xf32>'

// -----

func.func @f(%u: tensor<4x3xi8>, %s: tensor<f32>, %c: tensor<ui8>) {
  %r = graph.dequantize_linear %u, %s, %c : (tensor<4x3xi8>, tensor<f32>, tensor<ui8>) -> tensor<4x3xf32>
  func.return
}

// CHECK: 'graph.dequantize_linear' operand 'zero_point': expected elements of i8, got 'tensor<ui8>'

// -----

func.func @f(%u: tensor<4x3xi8>, %c: tensor<ui8>) {
  %r = graph.dequantize_linear %u, %c : (tensor<4x3xi8>, tensor<ui8>) -> tensor<4x3xf32>
  func.return
}

// CHECK: 'graph.dequantize_linear' operand 'scale': expected floats, got 'tensor<ui8>'; insert graph.astype

// -----

func.func @f(%u: tensor<4x3xi8>, %s: tensor<f32>, %c: tensor<ui8>) {
  %r = graph.dequantize_linear %u, %s, %c, %c : (tensor<4x3xi8>, tensor<f32>, tensor<ui8>, tensor<ui8>) -> tensor<4x3xf32>
  func.return
}

// CHECK: 'graph.dequantize_linear' expected at most the operand zero_point behind scale, got 2

// -----

func.func @f(%e: tensor<4x0xf32>) {
  %r:3 = graph.dynamic_quantize_linear %e : (tensor<4x0xf32>) -> (tensor<4x0xf32>, tensor<f32>, tensor<ui8>)
  func.return
}

// CHECK: 'graph.dynamic_quantize_linear' expected elements, [4, 0] has none; there is no range

// -----

func.func @f(%i: tensor<4x3xi32>) {
  %r:3 = graph.dynamic_quantize_linear %i : (tensor<4x3xi32>) -> (tensor<4x3xi8>, tensor<f32>, tensor<ui8>)
  func.return
}

// CHECK: 'graph.dynamic_quantize_linear' operand 'x': expected floats, got 'tensor<4x3xi32>'; insert graph.astype

// -----

func.func @f(%x: tensor<4x3xf32>, %y: tensor<4xf32>) {
  %r = graph.gemm %x, %y : (tensor<4x3xf32>, tensor<4xf32>) -> tensor<4xf32>
  func.return
}

// CHECK: 'graph.gemm' expected matrices a and b and at most the operand c, got 2 operands, [4, 3], [4]

// -----

func.func @f(%x: tensor<4x3xf32>) {
  %r = graph.gemm %x, %x : (tensor<4x3xf32>, tensor<4x3xf32>) -> tensor<4x3xf32>
  func.return
}

// CHECK: 'graph.gemm' contracted dimensions differ: [4, 3] @ [4, 3]; they must be equal

// -----

func.func @f(%x: tensor<4x3xf32>, %z: tensor<3xf32>) {
  %r = graph.gemm %x, %x, %z {transpose_b = true} : (tensor<4x3xf32>, tensor<4x3xf32>, tensor<3xf32>) -> tensor<4x4xf32>
  func.return
}

// CHECK: 'graph.gemm' operand 'c': expected a shape that broadcasts to [4, 4], got [3]

// -----

func.func @f(%x: tensor<4x3xf32>, %q: tensor<2x5x3xf32>) {
  %r = graph.linear %x, %q : (tensor<4x3xf32>, tensor<2x5x3xf32>) -> tensor<4x3xf32>
  func.return
}

// CHECK: 'graph.linear' expected x [..., K] and weight [M, K], got [4, 3] and [2, 5, 3]

// -----

func.func @f(%x: tensor<4x3xf32>, %w: tensor<5x3xf32>, %z: tensor<3xf32>) {
  %r = graph.linear %x, %w, %z : (tensor<4x3xf32>, tensor<5x3xf32>, tensor<3xf32>) -> tensor<4x5xf32>
  func.return
}

// CHECK: 'graph.linear' operand 'bias': expected shape [5], got [3]

// -----

func.func @f(%x: tensor<4x3xf32>, %w: tensor<5x3xf32>, %z: tensor<3xf32>) {
  %r = graph.linear %x, %w, %z, %z : (tensor<4x3xf32>, tensor<5x3xf32>, tensor<3xf32>, tensor<3xf32>) -> tensor<4x5xf32>
  func.return
}

// CHECK: 'graph.linear' expected at most the operand bias behind weight, got 2

// -----

func.func @f(%x: tensor<4x3xf32>, %y: tensor<4xf32>) {
  %r = graph.outer %x, %y : (tensor<4x3xf32>, tensor<4xf32>) -> tensor<4x3xf32>
  func.return
}

// CHECK: 'graph.outer' expected vectors, got [4, 3] and [4]

// -----

func.func @f(%x: tensor<4x3xf32>) {
  %r = graph.vecdot %x, %x {axis = 0 : i64} : (tensor<4x3xf32>, tensor<4x3xf32>) -> tensor<4xf32>
  func.return
}

// CHECK: 'graph.vecdot' attribute 'axis': expected -2 <= axis < 0, got 0

// -----

func.func @f(%x: tensor<4x3xf32>, %y: tensor<4xf32>) {
  %r = graph.vecdot %x, %y : (tensor<4x3xf32>, tensor<4xf32>) -> tensor<4xf32>
  func.return
}

// CHECK: 'graph.vecdot' the extents of axis -1 of [4, 3] and [4] must be equal

// -----

func.func @f(%x: tensor<4x3xf32>, %i: tensor<4x3xi32>) {
  %r = graph.vecdot %x, %i : (tensor<4x3xf32>, tensor<4x3xi32>) -> tensor<4xf32>
  func.return
}

// CHECK: 'graph.vecdot' operand 1: expected numbers of one type, got 'tensor<4x3xi32>'; insert graph.astype

// -----

func.func @f(%x: tensor<4x3xf32>) {
  %r = graph.einsum %x {equation = "ij,jk"} : (tensor<4x3xf32>) -> tensor<4x3xf32>
  func.return
}

// CHECK: 'graph.einsum' equation "ij,jk": expected 1 terms, one for each operand, got 2

// -----

func.func @f(%x: tensor<4x3xf32>) {
  %r = graph.einsum %x {equation = "i1"} : (tensor<4x3xf32>) -> tensor<4x3xf32>
  func.return
}

// CHECK: 'graph.einsum' equation "i1": expected letters, commas, "->" and "..." at most once in each term

// -----

func.func @f(%x: tensor<4x3xf32>) {
  %r = graph.einsum %x {equation = "ijk"} : (tensor<4x3xf32>) -> tensor<4x3xf32>
  func.return
}

// CHECK: 'graph.einsum' equation "ijk": term "ijk" does not name the axes of [4, 3]

// -----

func.func @f(%x: tensor<4x3xf32>) {
  %r = graph.einsum %x {equation = "ij->ik"} : (tensor<4x3xf32>) -> tensor<4x3xf32>
  func.return
}

// CHECK: 'graph.einsum' equation "ij->ik": expected letters of the operands, each once, behind "->", got 'k'

// -----

func.func @f(%x: tensor<4x3xf32>) {
  %r = graph.einsum %x, %x {equation = "ij,jk"} : (tensor<4x3xf32>, tensor<4x3xf32>) -> tensor<4x3xf32>
  func.return
}

// CHECK: 'graph.einsum' equation "ij,jk": 'j' has extents 3 and 4; make them equal or 1

// -----

func.func @f() {
  %r = graph.einsum {equation = "ij"} : () -> tensor<4x3xf32>
  func.return
}

// CHECK: 'graph.einsum' expected at least one operand
