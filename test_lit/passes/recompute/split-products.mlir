// RUN: fuse-opt %s --split-input-file --split-products | filecheck %s
// RUN: fuse-opt %s --split-input-file --split-products --split-products | filecheck %s
// RUN: fuse-opt %s --split-input-file --split-products --remarks 2>&1 >/dev/null | filecheck %s --check-prefix=REMARK

// Each part is the product with a part of the weight, along the axis of the weight that the columns of the result are.
// CHECK-LABEL: func.func @gradient(
// CHECK-NEXT:    %0 = graph.slice %w {starts = array<i64: 0, 0>, stops = array<i64: 48, 16>, {{.*}}
// CHECK-NEXT:    %a = graph.matmul %g, %0 {transpose_rhs = true} : (tensor<8x16xf32>, tensor<48x16xf32>) -> tensor<8x48xf32>
// CHECK-NEXT:    %1 = graph.slice %w {starts = array<i64: 48, 0>, stops = array<i64: 64, 16>, {{.*}}
// CHECK-NEXT:    %b = graph.matmul %g, %1 {transpose_rhs = true} : (tensor<8x16xf32>, tensor<16x16xf32>) -> tensor<8x16xf32>
// CHECK-NEXT:    graph.tanh %a
// CHECK-NEXT:    graph.matmul
// CHECK-NEXT:    graph.add %b,
// REMARK: split: 'graph.matmul' is a product for each of 2 parts
func.func @gradient(%g: tensor<8x16xf32>, %w: tensor<64x16xf32>, %v: tensor<48x16xf32>) -> tensor<8x16xf32> {
  %d = graph.matmul %g, %w {transpose_rhs = true} : (tensor<8x16xf32>, tensor<64x16xf32>) -> tensor<8x64xf32>
  %a = graph.slice %d {starts = array<i64: 0, 0>, stops = array<i64: 8, 48>, steps = array<i64: 1, 1>} : (tensor<8x64xf32>) -> tensor<8x48xf32>
  %t = graph.tanh %a : (tensor<8x48xf32>) -> tensor<8x48xf32>
  %s = graph.matmul %t, %v : (tensor<8x48xf32>, tensor<48x16xf32>) -> tensor<8x16xf32>
  %b = graph.slice %d {starts = array<i64: 0, 48>, stops = array<i64: 8, 64>, steps = array<i64: 1, 1>} : (tensor<8x64xf32>) -> tensor<8x16xf32>
  %r = graph.add %b, %s : (tensor<8x16xf32>, tensor<8x16xf32>) -> tensor<8x16xf32>
  func.return %r : tensor<8x16xf32>
}

// -----

// So it is for the channels of a convolution's gradient.
// CHECK-LABEL: func.func @channels(
// CHECK-NEXT:    graph.slice %w {starts = array<i64: 0, 0, 0, 0>, stops = array<i64: 4, 2, 3, 3>
// CHECK-NEXT:    %a = graph.conv_backward_data %g, %0 {{{.*}}shape = array<i64: 5, 5>} : (tensor<1x4x5x5xf32>, tensor<4x2x3x3xf32>) -> tensor<1x2x5x5xf32>
// CHECK-NEXT:    graph.slice %w {starts = array<i64: 0, 2, 0, 0>, stops = array<i64: 4, 6, 3, 3>
// CHECK-NEXT:    %b = graph.conv_backward_data %g, %1 {{{.*}}shape = array<i64: 5, 5>} : (tensor<1x4x5x5xf32>, tensor<4x4x3x3xf32>) -> tensor<1x4x5x5xf32>
func.func @channels(%g: tensor<1x4x5x5xf32>, %w: tensor<4x6x3x3xf32>, %v: tensor<4x2x1x1xf32>) -> tensor<1x4x5x5xf32> {
  %d = graph.conv_backward_data %g, %w {pads = array<i64: 1, 1, 1, 1>, shape = array<i64: 5, 5>} : (tensor<1x4x5x5xf32>, tensor<4x6x3x3xf32>) -> tensor<1x6x5x5xf32>
  %a = graph.slice %d {starts = array<i64: 0, 0, 0, 0>, stops = array<i64: 1, 2, 5, 5>, steps = array<i64: 1, 1, 1, 1>} : (tensor<1x6x5x5xf32>) -> tensor<1x2x5x5xf32>
  %s = graph.conv %a, %v : (tensor<1x2x5x5xf32>, tensor<4x2x1x1xf32>) -> tensor<1x4x5x5xf32>
  %b = graph.slice %d {starts = array<i64: 0, 2, 0, 0>, stops = array<i64: 1, 6, 5, 5>, steps = array<i64: 1, 1, 1, 1>} : (tensor<1x6x5x5xf32>) -> tensor<1x4x5x5xf32>
  %r = graph.add %b, %s : (tensor<1x4x5x5xf32>, tensor<1x4x5x5xf32>) -> tensor<1x4x5x5xf32>
  func.return %r : tensor<1x4x5x5xf32>
}

// -----

// Groups have weights of their own.
// CHECK-LABEL: func.func @groups(
// CHECK-NEXT:    graph.conv_backward_data {{.*}} -> tensor<1x6x5x5xf32>
func.func @groups(%g: tensor<1x4x5x5xf32>, %w: tensor<4x3x3x3xf32>, %v: tensor<3x3x1x1xf32>) -> tensor<1x3x5x5xf32> {
  %d = graph.conv_backward_data %g, %w {groups = 2 : i64, pads = array<i64: 1, 1, 1, 1>, shape = array<i64: 5, 5>} : (tensor<1x4x5x5xf32>, tensor<4x3x3x3xf32>) -> tensor<1x6x5x5xf32>
  %a = graph.slice %d {starts = array<i64: 0, 0, 0, 0>, stops = array<i64: 1, 3, 5, 5>, steps = array<i64: 1, 1, 1, 1>} : (tensor<1x6x5x5xf32>) -> tensor<1x3x5x5xf32>
  %s = graph.conv %a, %v : (tensor<1x3x5x5xf32>, tensor<3x3x1x1xf32>) -> tensor<1x3x5x5xf32>
  %b = graph.slice %d {starts = array<i64: 0, 3, 0, 0>, stops = array<i64: 1, 6, 5, 5>, steps = array<i64: 1, 1, 1, 1>} : (tensor<1x6x5x5xf32>) -> tensor<1x3x5x5xf32>
  %r = graph.add %b, %s : (tensor<1x3x5x5xf32>, tensor<1x3x5x5xf32>) -> tensor<1x3x5x5xf32>
  func.return %r : tensor<1x3x5x5xf32>
}

// -----

// What else reads the whole product keeps it anyway.
// CHECK-LABEL: func.func @whole(
// CHECK-NEXT:    %e = graph.matmul %d, %w
func.func @whole(%d: tensor<8x64xf32>, %w: tensor<64x64xf32>, %v: tensor<48x16xf32>) -> (tensor<8x16xf32>, tensor<8x64xf32>) {
  %e = graph.matmul %d, %w : (tensor<8x64xf32>, tensor<64x64xf32>) -> tensor<8x64xf32>
  %a = graph.slice %e {starts = array<i64: 0, 0>, stops = array<i64: 8, 48>, steps = array<i64: 1, 1>} : (tensor<8x64xf32>) -> tensor<8x48xf32>
  %s = graph.matmul %a, %v : (tensor<8x48xf32>, tensor<48x16xf32>) -> tensor<8x16xf32>
  %b = graph.slice %e {starts = array<i64: 0, 48>, stops = array<i64: 8, 64>, steps = array<i64: 1, 1>} : (tensor<8x64xf32>) -> tensor<8x16xf32>
  %r = graph.add %b, %s : (tensor<8x16xf32>, tensor<8x16xf32>) -> tensor<8x16xf32>
  func.return %r, %e : tensor<8x16xf32>, tensor<8x64xf32>
}

// -----

// Nor is it done for parts that overlap, of rows, where one op reads both, or against a directive.
// CHECK-LABEL: func.func @overlapping(
// CHECK-NEXT:    %e = graph.matmul %g, %w
func.func @overlapping(%g: tensor<8x64xf32>, %w: tensor<64x64xf32>, %v: tensor<48x48xf32>) -> tensor<8x48xf32> {
  %e = graph.matmul %g, %w : (tensor<8x64xf32>, tensor<64x64xf32>) -> tensor<8x64xf32>
  %a = graph.slice %e {starts = array<i64: 0, 0>, stops = array<i64: 8, 48>, steps = array<i64: 1, 1>} : (tensor<8x64xf32>) -> tensor<8x48xf32>
  %s = graph.matmul %a, %v : (tensor<8x48xf32>, tensor<48x48xf32>) -> tensor<8x48xf32>
  %b = graph.slice %e {starts = array<i64: 0, 16>, stops = array<i64: 8, 64>, steps = array<i64: 1, 1>} : (tensor<8x64xf32>) -> tensor<8x48xf32>
  %r = graph.add %b, %s : (tensor<8x48xf32>, tensor<8x48xf32>) -> tensor<8x48xf32>
  func.return %r : tensor<8x48xf32>
}

// -----

// CHECK-LABEL: func.func @rows(
// CHECK-NEXT:    %e = graph.matmul %g, %w
func.func @rows(%g: tensor<8x64xf32>, %w: tensor<64x64xf32>, %v: tensor<64x64xf32>) -> tensor<4x64xf32> {
  %e = graph.matmul %g, %w : (tensor<8x64xf32>, tensor<64x64xf32>) -> tensor<8x64xf32>
  %a = graph.slice %e {starts = array<i64: 0, 0>, stops = array<i64: 4, 64>, steps = array<i64: 1, 1>} : (tensor<8x64xf32>) -> tensor<4x64xf32>
  %s = graph.matmul %a, %v : (tensor<4x64xf32>, tensor<64x64xf32>) -> tensor<4x64xf32>
  %b = graph.slice %e {starts = array<i64: 4, 0>, stops = array<i64: 8, 64>, steps = array<i64: 1, 1>} : (tensor<8x64xf32>) -> tensor<4x64xf32>
  %r = graph.add %b, %s : (tensor<4x64xf32>, tensor<4x64xf32>) -> tensor<4x64xf32>
  func.return %r : tensor<4x64xf32>
}

// -----

// CHECK-LABEL: func.func @together(
// CHECK-NEXT:    %e = graph.matmul %g, %w
func.func @together(%g: tensor<8x64xf32>, %w: tensor<64x64xf32>) -> tensor<8x32xf32> {
  %e = graph.matmul %g, %w : (tensor<8x64xf32>, tensor<64x64xf32>) -> tensor<8x64xf32>
  %a = graph.slice %e {starts = array<i64: 0, 0>, stops = array<i64: 8, 32>, steps = array<i64: 1, 1>} : (tensor<8x64xf32>) -> tensor<8x32xf32>
  %b = graph.slice %e {starts = array<i64: 0, 32>, stops = array<i64: 8, 64>, steps = array<i64: 1, 1>} : (tensor<8x64xf32>) -> tensor<8x32xf32>
  %r = graph.add %b, %a : (tensor<8x32xf32>, tensor<8x32xf32>) -> tensor<8x32xf32>
  func.return %r : tensor<8x32xf32>
}

// -----

// CHECK-LABEL: func.func @steered(
// CHECK-NEXT:    %d = graph.matmul %g, %w
func.func @steered(%g: tensor<8x16xf32>, %w: tensor<64x16xf32>, %v: tensor<48x16xf32>) -> tensor<8x16xf32> {
  %d = graph.matmul %g, %w {transpose_rhs = true} : (tensor<8x16xf32>, tensor<64x16xf32>) -> tensor<8x64xf32>
  %a = graph.slice %d {starts = array<i64: 0, 0>, stops = array<i64: 8, 48>, steps = array<i64: 1, 1>} : (tensor<8x64xf32>) -> tensor<8x48xf32>
  %s = graph.matmul %a, %v : (tensor<8x48xf32>, tensor<48x16xf32>) -> tensor<8x16xf32>
  %b = graph.slice %d {fuse_group = "late", starts = array<i64: 0, 48>, stops = array<i64: 8, 64>, steps = array<i64: 1, 1>} : (tensor<8x64xf32>) -> tensor<8x16xf32>
  %r = graph.add %b, %s : (tensor<8x16xf32>, tensor<8x16xf32>) -> tensor<8x16xf32>
  func.return %r : tensor<8x16xf32>
}
