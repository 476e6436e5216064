// RUN: fuse-opt %s --split-input-file --rematerialize=slower=1.0e-04 | filecheck %s

// What the backward half reads of the forward half comes from %h alone, which is kept.
func.func @chain(%x: tensor<256x256xf32>, %w: tensor<256x256xf32>, %g: tensor<256x256xf32>) -> tensor<256x256xf32> {
  %p = graph.matmul %x, %w : (tensor<256x256xf32>, tensor<256x256xf32>) -> tensor<256x256xf32>
  %h = graph.add %p, %x : (tensor<256x256xf32>, tensor<256x256xf32>) -> tensor<256x256xf32>
  %r = graph.relu %h : (tensor<256x256xf32>) -> tensor<256x256xf32>
  %s = graph.multiply %r, %r : (tensor<256x256xf32>, tensor<256x256xf32>) -> tensor<256x256xf32>
  %q = graph.matmul %s, %w : (tensor<256x256xf32>, tensor<256x256xf32>) -> tensor<256x256xf32>
  %d = graph.matmul %q, %g : (tensor<256x256xf32>, tensor<256x256xf32>) -> tensor<256x256xf32>
  %a = graph.multiply %d, %h : (tensor<256x256xf32>, tensor<256x256xf32>) -> tensor<256x256xf32>
  %b = graph.multiply %a, %r : (tensor<256x256xf32>, tensor<256x256xf32>) -> tensor<256x256xf32>
  func.return %b : tensor<256x256xf32>
}
// CHECK-LABEL: func.func @chain(
// CHECK: %r = graph.relu %h :
// CHECK-NEXT: %s = graph.multiply %r, %r
// CHECK: %a = graph.multiply %d, %h
// CHECK-NEXT: %r_1 = graph.relu %h {recompute = 7 : i64}
// CHECK-NEXT: %b = graph.multiply %a, %r_1

// -----

// Random numbers follow from their position: the same mask is computed twice, and none is kept.
func.func @dropout(%x: tensor<256x256xf32>, %w: tensor<256x256xf32>, %g: tensor<256x256xf32>) -> tensor<256x256xf32> {
  %p = graph.matmul %x, %w : (tensor<256x256xf32>, tensor<256x256xf32>) -> tensor<256x256xf32>
  %u = graph.random_uniform {seed = 7 : i64, shape = array<i64: 256, 256>, dtype = f32} : () -> tensor<256x256xf32>
  %m = graph.multiply %p, %u : (tensor<256x256xf32>, tensor<256x256xf32>) -> tensor<256x256xf32>
  %q = graph.matmul %m, %w : (tensor<256x256xf32>, tensor<256x256xf32>) -> tensor<256x256xf32>
  %d = graph.matmul %q, %g : (tensor<256x256xf32>, tensor<256x256xf32>) -> tensor<256x256xf32>
  %b = graph.multiply %d, %u : (tensor<256x256xf32>, tensor<256x256xf32>) -> tensor<256x256xf32>
  func.return %b : tensor<256x256xf32>
}
// CHECK-LABEL: func.func @dropout(
// CHECK: graph.random_uniform {{.*}}seed = 7
// CHECK: %d = graph.matmul
// CHECK-NEXT: %u_1 = graph.random_uniform {seed = 7 : i64, {{.*}}recompute = 7 : i64}
// CHECK-NEXT: %b = graph.multiply %d, %u_1

// -----

// A residual is one value, and so is what it comes from: nothing is gained.
func.func @residual(%x: tensor<256x256xf32>, %w: tensor<256x256xf32>, %g: tensor<256x256xf32>) -> tensor<256x256xf32> {
  %p = graph.matmul %x, %w : (tensor<256x256xf32>, tensor<256x256xf32>) -> tensor<256x256xf32>
  %h = graph.relu %p : (tensor<256x256xf32>) -> tensor<256x256xf32>
  %q = graph.matmul %h, %w : (tensor<256x256xf32>, tensor<256x256xf32>) -> tensor<256x256xf32>
  %d = graph.matmul %q, %g : (tensor<256x256xf32>, tensor<256x256xf32>) -> tensor<256x256xf32>
  %b = graph.add %d, %h : (tensor<256x256xf32>, tensor<256x256xf32>) -> tensor<256x256xf32>
  func.return %b : tensor<256x256xf32>
}
// CHECK-LABEL: func.func @residual(
// CHECK-NOT: recompute
// CHECK: func.return

// -----

// A person keeps %r to the end, so that its readers may as well read it.
func.func @kept(%x: tensor<256x256xf32>, %w: tensor<256x256xf32>, %g: tensor<256x256xf32>) -> tensor<256x256xf32> {
  %p = graph.matmul %x, %w : (tensor<256x256xf32>, tensor<256x256xf32>) -> tensor<256x256xf32>
  %h = graph.add %p, %x : (tensor<256x256xf32>, tensor<256x256xf32>) -> tensor<256x256xf32>
  %r = graph.relu %h {keep_live} : (tensor<256x256xf32>) -> tensor<256x256xf32>
  %q = graph.matmul %r, %w : (tensor<256x256xf32>, tensor<256x256xf32>) -> tensor<256x256xf32>
  %d = graph.matmul %q, %g : (tensor<256x256xf32>, tensor<256x256xf32>) -> tensor<256x256xf32>
  %a = graph.multiply %d, %h : (tensor<256x256xf32>, tensor<256x256xf32>) -> tensor<256x256xf32>
  %b = graph.multiply %a, %r : (tensor<256x256xf32>, tensor<256x256xf32>) -> tensor<256x256xf32>
  func.return %b : tensor<256x256xf32>
}
// CHECK-LABEL: func.func @kept(
// CHECK-NOT: recompute
// CHECK: func.return

// -----

// Without an op that no loop holds there is nothing to keep a value over.
func.func @loops(%x: tensor<256x256xf32>, %w: tensor<256x256xf32>, %g: tensor<256x256xf32>) -> tensor<256x256xf32> {
  %h = graph.add %x, %w : (tensor<256x256xf32>, tensor<256x256xf32>) -> tensor<256x256xf32>
  %r = graph.relu %h : (tensor<256x256xf32>) -> tensor<256x256xf32>
  %a = graph.multiply %r, %g : (tensor<256x256xf32>, tensor<256x256xf32>) -> tensor<256x256xf32>
  %b = graph.multiply %a, %r : (tensor<256x256xf32>, tensor<256x256xf32>) -> tensor<256x256xf32>
  func.return %b : tensor<256x256xf32>
}
// CHECK-LABEL: func.func @loops(
// CHECK-NOT: recompute
// CHECK: func.return

// -----

// What takes over the memory of %h would be in the way of a later reader of it.
func.func @overwritten(%x: tensor<256x256xf32>, %w: tensor<256x256xf32>, %g: tensor<256x256xf32>) -> tensor<256x256xf32> {
  %p = graph.matmul %x, %w : (tensor<256x256xf32>, tensor<256x256xf32>) -> tensor<256x256xf32>
  %h = graph.add %p, %x : (tensor<256x256xf32>, tensor<256x256xf32>) -> tensor<256x256xf32>
  %r = graph.relu %h : (tensor<256x256xf32>) -> tensor<256x256xf32>
  %t = graph.abs %h : (tensor<256x256xf32>) -> tensor<256x256xf32>
  %s = graph.multiply %h, %x {must_inplace} : (tensor<256x256xf32>, tensor<256x256xf32>) -> tensor<256x256xf32>
  %q = graph.matmul %s, %w : (tensor<256x256xf32>, tensor<256x256xf32>) -> tensor<256x256xf32>
  %d = graph.matmul %q, %g : (tensor<256x256xf32>, tensor<256x256xf32>) -> tensor<256x256xf32>
  %a = graph.multiply %d, %r : (tensor<256x256xf32>, tensor<256x256xf32>) -> tensor<256x256xf32>
  %b = graph.multiply %a, %t : (tensor<256x256xf32>, tensor<256x256xf32>) -> tensor<256x256xf32>
  func.return %b : tensor<256x256xf32>
}
// CHECK-LABEL: func.func @overwritten(
// CHECK-NOT: recompute
// CHECK: func.return
