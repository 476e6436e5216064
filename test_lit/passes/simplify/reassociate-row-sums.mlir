// RUN: fuse-opt %s --split-input-file --reassociate-row-sums --dce | filecheck %s
// RUN: fuse-opt %s --split-input-file --reassociate-row-sums --reassociate-row-sums --dce | filecheck %s
// RUN: fuse-opt %s --split-input-file --reassociate-row-sums --remarks 2>&1 >/dev/null | filecheck %s --check-prefix=REMARK

// The sum over 16 keys of p times g times v is one over 32 elements of g times the sum of p times v.
// CHECK-LABEL: func.func @gradient(
// CHECK-NEXT:    %o = graph.matmul %p, %v
// CHECK-NEXT:    [[M:%.*]] = graph.multiply %g, %o
// CHECK-NEXT:    %s = graph.sum [[M]] {axes = array<i64: 2>} : (tensor<2x8x32xf32>) -> tensor<2x8xf32>
// CHECK-NEXT:    func.return %o, %s
// REMARK: reassociated: 'graph.sum' is a sum over what a product gives, in place of one over what it is made from elements=16 instead=32
func.func @gradient(%p: tensor<2x8x16xf32>, %v: tensor<2x16x32xf32>, %g: tensor<2x8x32xf32>) -> (tensor<2x8x32xf32>, tensor<2x8xf32>) {
  %o = graph.matmul %p, %v : (tensor<2x8x16xf32>, tensor<2x16x32xf32>) -> tensor<2x8x32xf32>
  %d = graph.matmul %g, %v {transpose_rhs = true} : (tensor<2x8x32xf32>, tensor<2x16x32xf32>) -> tensor<2x8x16xf32>
  %m = graph.multiply %p, %d : (tensor<2x8x16xf32>, tensor<2x8x16xf32>) -> tensor<2x8x16xf32>
  %s = graph.sum %m {axes = array<i64: 2>} : (tensor<2x8x16xf32>) -> tensor<2x8xf32>
  func.return %o, %s : tensor<2x8x32xf32>, tensor<2x8xf32>
}

// -----

// Numbers of rows by which the two differ, choices between the matrix and 0 that both make, rows counted along other axes.
// CHECK-LABEL: func.func @factors(
// CHECK:         [[G:%.*]] = graph.reshape %g {{.*}} -> tensor<16x32xf32>
// CHECK-NEXT:    [[O:%.*]] = graph.reshape %o {{.*}} -> tensor<16x32xf32>
// CHECK-NEXT:    [[M:%.*]] = graph.multiply [[G]], [[O]]
// CHECK-NEXT:    [[L:%.*]] = graph.reshape %l {{.*}} -> tensor<16x1xf32>
// CHECK-NEXT:    [[N:%.*]] = graph.multiply [[M]], [[L]]
// CHECK-NEXT:    %s = graph.sum [[N]] {axes = array<i64: 1>} : (tensor<16x32xf32>) -> tensor<16xf32>
func.func @factors(%e: tensor<2x8x16xf32>, %l: tensor<2x8x1xf32>, %c: tensor<2x8x16xi1>, %v: tensor<2x16x32xf32>, %g: tensor<2x8x32xf32>) -> (tensor<2x8x32xf32>, tensor<16xf32>) {
  %0 = graph.constant dense<0.0> : tensor<f32>
  %q = graph.divide %e, %l : (tensor<2x8x16xf32>, tensor<2x8x1xf32>) -> tensor<2x8x16xf32>
  %p = graph.where %c, %q, %0 : (tensor<2x8x16xi1>, tensor<2x8x16xf32>, tensor<f32>) -> tensor<2x8x16xf32>
  %o = graph.matmul %p, %v : (tensor<2x8x16xf32>, tensor<2x16x32xf32>) -> tensor<2x8x32xf32>
  %d = graph.matmul %g, %v {transpose_rhs = true} : (tensor<2x8x32xf32>, tensor<2x16x32xf32>) -> tensor<2x8x16xf32>
  %k = graph.where %c, %d, %0 : (tensor<2x8x16xi1>, tensor<2x8x16xf32>, tensor<f32>) -> tensor<2x8x16xf32>
  %m = graph.multiply %k, %e : (tensor<2x8x16xf32>, tensor<2x8x16xf32>) -> tensor<2x8x16xf32>
  %r = graph.reshape %m {shape = array<i64: 16, 16>} : (tensor<2x8x16xf32>) -> tensor<16x16xf32>
  %s = graph.sum %r {axes = array<i64: 1>} : (tensor<16x16xf32>) -> tensor<16xf32>
  func.return %o, %s : tensor<2x8x32xf32>, tensor<16xf32>
}

// -----

// Not: another matrix than the product's, a choice that the product does not make, 16 bits, another axis, a product that comes later.
// CHECK-LABEL: func.func @apart(
// CHECK-COUNT-4: graph.sum {{.*}}tensor<8x16xf32>
// CHECK:         graph.sum {{.*}}tensor<8x16xf16>
// CHECK:         func.return
func.func @apart(%p: tensor<8x16xf32>, %c: tensor<8x16xi1>, %v: tensor<16x32xf32>, %g: tensor<8x32xf32>, %ph: tensor<8x16xf16>, %vh: tensor<16x32xf16>, %gh: tensor<8x32xf16>) -> (tensor<8x32xf32>, tensor<8xf32>, tensor<8xf32>, tensor<16xf32>, tensor<8xf32>, tensor<8x32xf32>, tensor<8xf16>, tensor<8x32xf16>) {
  %0 = graph.constant dense<0.0> : tensor<f32>
  %d = graph.matmul %g, %v {transpose_rhs = true} : (tensor<8x32xf32>, tensor<16x32xf32>) -> tensor<8x16xf32>
  %m0 = graph.multiply %p, %d : (tensor<8x16xf32>, tensor<8x16xf32>) -> tensor<8x16xf32>
  %early = graph.sum %m0 {axes = array<i64: 1>} : (tensor<8x16xf32>) -> tensor<8xf32>
  %o = graph.matmul %p, %v : (tensor<8x16xf32>, tensor<16x32xf32>) -> tensor<8x32xf32>
  %n = graph.exp %p : (tensor<8x16xf32>) -> tensor<8x16xf32>
  %m1 = graph.multiply %n, %d : (tensor<8x16xf32>, tensor<8x16xf32>) -> tensor<8x16xf32>
  %s1 = graph.sum %m1 {axes = array<i64: 1>} : (tensor<8x16xf32>) -> tensor<8xf32>
  %s2 = graph.sum %m0 {axes = array<i64: 0>} : (tensor<8x16xf32>) -> tensor<16xf32>
  %k = graph.where %c, %d, %0 : (tensor<8x16xi1>, tensor<8x16xf32>, tensor<f32>) -> tensor<8x16xf32>
  %m3 = graph.multiply %p, %k : (tensor<8x16xf32>, tensor<8x16xf32>) -> tensor<8x16xf32>
  %s3 = graph.sum %m3 {axes = array<i64: 1>} : (tensor<8x16xf32>) -> tensor<8xf32>
  %oh = graph.matmul %ph, %vh : (tensor<8x16xf16>, tensor<16x32xf16>) -> tensor<8x32xf16>
  %dh = graph.matmul %gh, %vh {transpose_rhs = true} : (tensor<8x32xf16>, tensor<16x32xf16>) -> tensor<8x16xf16>
  %mh = graph.multiply %ph, %dh : (tensor<8x16xf16>, tensor<8x16xf16>) -> tensor<8x16xf16>
  %sh = graph.sum %mh {axes = array<i64: 1>} : (tensor<8x16xf16>) -> tensor<8xf16>
  func.return %o, %early, %s1, %s2, %s3, %o, %sh, %oh : tensor<8x32xf32>, tensor<8xf32>, tensor<8xf32>, tensor<16xf32>, tensor<8xf32>, tensor<8x32xf32>, tensor<8xf16>, tensor<8x32xf16>
}

// -----

// Not: rows read at positions, which no product gives, are a matrix as any other.
// CHECK-LABEL: func.func @at_positions(
// CHECK:         graph.sum {{.*}}tensor<5x64xf32>
// CHECK:         func.return
func.func @at_positions(%t: tensor<100x64xf32>, %i: tensor<5xi64>) -> tensor<5xf32> {
  %e = graph.embedding %t, %i : (tensor<100x64xf32>, tensor<5xi64>) -> tensor<5x64xf32>
  %q = graph.multiply %e, %e : (tensor<5x64xf32>, tensor<5x64xf32>) -> tensor<5x64xf32>
  %s = graph.sum %q {axes = array<i64: 1>} : (tensor<5x64xf32>) -> tensor<5xf32>
  func.return %s : tensor<5xf32>
}
