// RUN: fuse-opt %s --split-input-file --pack-weights | filecheck %s
// RUN: fuse-opt %s --split-input-file --pack-weights --pack-weights | filecheck %s
// RUN: fuse-opt %s --split-input-file --pack-weights --remarks=- 2>&1 | filecheck %s --check-prefix=WHY
// RUN: fuse-opt %s --split-input-file --pack-weights=device=avx2 | filecheck %s --check-prefix=NARROW

// The kernel reads panels, through views that undo the packing; the other function makes them in a kernel of its own.
// CHECK-LABEL: func.func @packed(
// CHECK-SAME:      %w: tensor<300x100xf32> {graph.frozen}, %w_packed: tensor<2x300x64xf32> {graph.prepared = @packed.prepare})
// CHECK-NEXT:      %y = fused.kernel(%a = %x : tensor<40x300xf32>, %w_packed_1 = %w_packed : tensor<2x300x64xf32>) -> (tensor<40x100xf32>) {
// CHECK-NEXT:        %0 = graph.permute_dims %w_packed_1 {axes = array<i64: 1, 0, 2>}
// CHECK-NEXT:        %1 = graph.reshape %0 {shape = array<i64: 300, 128>}
// CHECK-NEXT:        %2 = graph.slice %1
// CHECK:             %p = graph.matmul %a,
// CHECK-NEXT:        %r = graph.relu %p
// CHECK:         func.func private @packed.prepare(%w: tensor<300x100xf32>) -> tensor<2x300x64xf32> {
// CHECK-NEXT:      %0 = fused.kernel(%w_1 = %w : tensor<300x100xf32>) -> (tensor<2x300x64xf32>) {
// CHECK:             graph.pad {{.*}}pads = array<i64: 0, 0, 0, 28>
// CHECK:             graph.permute_dims {{.*}}axes = array<i64: 1, 0, 2>
// CHECK:           func.return %0
// WHY: packed: 'fused.kernel' reads its right operand in panels that 'packed.prepare' makes width=64 bytes=153600
func.func @packed(%x: tensor<40x300xf32>, %w: tensor<300x100xf32> {graph.frozen}) -> tensor<40x100xf32> {
  %y = fused.kernel(%a = %x : tensor<40x300xf32>, %b = %w : tensor<300x100xf32>) -> (tensor<40x100xf32>) {
    %p = graph.matmul %a, %b : (tensor<40x300xf32>, tensor<300x100xf32>) -> tensor<40x100xf32>
    %r = graph.relu %p : (tensor<40x100xf32>) -> tensor<40x100xf32>
    fused.yield %r : tensor<40x100xf32>
  }
  func.return %y : tensor<40x100xf32>
}

// -----

// A transposed operand is turned as it is packed; two kernels read the same panels. What is prepared and nobody reads any more
// is no argument.
// CHECK-LABEL: func.func @turned(
// CHECK-SAME:      %w: tensor<100x300xf32> {graph.frozen}, %e_packed: tensor<2x300x64xf32> {graph.prepared = @turned.prepare})
// CHECK-COUNT-2:   %e_packed : tensor<2x300x64xf32>
// CHECK-LABEL:   func.func private @turned.prepare(
// CHECK-SAME:      -> tensor<2x300x64xf32> {
// CHECK:           %e = graph.exp %w
// CHECK:           fused.kernel(%e_1 = %e
// CHECK:             graph.permute_dims {{.*}}axes = array<i64: 1, 0>
// CHECK-NOT:       fused.kernel
func.func @turned(%x: tensor<40x300xf32>, %w: tensor<100x300xf32> {graph.frozen}, %e: tensor<100x300xf32> {graph.prepared = @turned.prepare}) -> (tensor<40x100xf32>, tensor<40x100xf32>) {
  %y = fused.kernel(%a = %x : tensor<40x300xf32>, %b = %e : tensor<100x300xf32>) -> (tensor<40x100xf32>) {
    %p = graph.matmul %a, %b {transpose_rhs = true} : (tensor<40x300xf32>, tensor<100x300xf32>) -> tensor<40x100xf32>
    fused.yield %p : tensor<40x100xf32>
  }
  %z = fused.kernel(%a = %x : tensor<40x300xf32>, %b = %e : tensor<100x300xf32>) -> (tensor<40x100xf32>) {
    %p = graph.matmul %a, %b {transpose_rhs = true} : (tensor<40x300xf32>, tensor<100x300xf32>) -> tensor<40x100xf32>
    %r = graph.relu %p : (tensor<40x100xf32>) -> tensor<40x100xf32>
    fused.yield %r : tensor<40x100xf32>
  }
  func.return %y, %z : tensor<40x100xf32>, tensor<40x100xf32>
}
func.func private @turned.prepare(%w: tensor<100x300xf32>) -> tensor<100x300xf32> {
  %e = graph.exp %w : (tensor<100x300xf32>) -> tensor<100x300xf32>
  func.return %e : tensor<100x300xf32>
}

// -----

// Another one for each matrix of a batch has panels of its own for each.
// CHECK-LABEL: func.func @batched(
// CHECK-SAME:      %w_packed: tensor<2x2x300x64xf32> {graph.prepared = @batched.prepare})
// CHECK:             graph.permute_dims %w_packed_1 {axes = array<i64: 0, 2, 1, 3>}
func.func @batched(%x: tensor<2x40x300xf32>, %w: tensor<2x300x100xf32> {graph.frozen}) -> tensor<2x40x100xf32> {
  %y = fused.kernel(%a = %x : tensor<2x40x300xf32>, %b = %w : tensor<2x300x100xf32>) -> (tensor<2x40x100xf32>) {
    %p = graph.matmul %a, %b : (tensor<2x40x300xf32>, tensor<2x300x100xf32>) -> tensor<2x40x100xf32>
    fused.yield %p : tensor<2x40x100xf32>
  }
  func.return %y : tensor<2x40x100xf32>
}

// -----

// A small transposed operand that many rows meet is turned, as each call would turn it: one panel, no wider than it.
// CHECK-LABEL: func.func @small(
// CHECK-SAME:      %w_packed: tensor<1x64x70xf32> {graph.prepared = @small.prepare})
// WHY: packed: 'fused.kernel' reads its right operand in panels that 'small.prepare' makes width=70 bytes=17920
func.func @small(%x: tensor<40x64xf32>, %w: tensor<70x64xf32> {graph.frozen}) -> tensor<40x70xf32> {
  %y = fused.kernel(%a = %x : tensor<40x64xf32>, %b = %w : tensor<70x64xf32>) -> (tensor<40x70xf32>) {
    %p = graph.matmul %a, %b {transpose_rhs = true} : (tensor<40x64xf32>, tensor<70x64xf32>) -> tensor<40x70xf32>
    fused.yield %p : tensor<40x70xf32>
  }
  func.return %y : tensor<40x70xf32>
}

// -----

// Not: another one along some axes of a batch alone, a small one, one panel, element types that are no generated product.
// CHECK-LABEL: func.func @left(
// CHECK-NOT:     @left.prepare
// WHY: batched: 'fused.kernel' reads its right operand as it is: it is another one along some axes of a batch, and the same along others
// WHY: small: 'fused.kernel' reads its right operand as it is: first caches hold it
// WHY: one-panel: 'fused.kernel' reads its right operand as it is: one panel would hold it, or it is one row
// WHY: element-type: 'fused.kernel' reads its right operand as it is: 'graph.matmul' is of f16 and f16; packed are f32 and f64, and i8 that bytes meet
func.func @left(%x: tensor<2x3x40x300xf32>, %y: tensor<40x900xf32>, %h: tensor<40x300xf16>, %a: tensor<1x3x300x100xf32> {graph.frozen}, %b: tensor<64x70xf32> {graph.frozen}, %c: tensor<900x32xf32> {graph.frozen}, %d: tensor<300x900xf16> {graph.frozen}, %s: tensor<40x64xf32>)
    -> (tensor<2x3x40x100xf32>, tensor<40x70xf32>, tensor<40x32xf32>, tensor<40x900xf16>) {
  %0 = fused.kernel(%i = %x : tensor<2x3x40x300xf32>, %j = %a : tensor<1x3x300x100xf32>) -> (tensor<2x3x40x100xf32>) {
    %p = graph.matmul %i, %j : (tensor<2x3x40x300xf32>, tensor<1x3x300x100xf32>) -> tensor<2x3x40x100xf32>
    fused.yield %p : tensor<2x3x40x100xf32>
  }
  %1 = fused.kernel(%i = %s : tensor<40x64xf32>, %j = %b : tensor<64x70xf32>) -> (tensor<40x70xf32>) {
    %p = graph.matmul %i, %j : (tensor<40x64xf32>, tensor<64x70xf32>) -> tensor<40x70xf32>
    fused.yield %p : tensor<40x70xf32>
  }
  %2 = fused.kernel(%i = %y : tensor<40x900xf32>, %j = %c : tensor<900x32xf32>) -> (tensor<40x32xf32>) {
    %p = graph.matmul %i, %j : (tensor<40x900xf32>, tensor<900x32xf32>) -> tensor<40x32xf32>
    fused.yield %p : tensor<40x32xf32>
  }
  %3 = fused.kernel(%i = %h : tensor<40x300xf16>, %j = %d : tensor<300x900xf16>) -> (tensor<40x900xf16>) {
    %p = graph.matmul %i, %j : (tensor<40x300xf16>, tensor<300x900xf16>) -> tensor<40x900xf16>
    fused.yield %p : tensor<40x900xf16>
  }
  func.return %0, %1, %2, %3 : tensor<2x3x40x100xf32>, tensor<40x70xf32>, tensor<40x32xf32>, tensor<40x900xf16>
}

// -----

// Not: what is not frozen; a kernel that a person gave to a library.
// CHECK-LABEL: func.func @kept(
// CHECK-NOT:     @kept.prepare
func.func @kept(%x: tensor<40x300xf32>, %v: tensor<300x100xf32>, %w: tensor<300x100xf32> {graph.frozen}) -> (tensor<40x100xf32>, tensor<40x100xf32>) {
  %y = fused.kernel(%a = %x : tensor<40x300xf32>, %b = %v : tensor<300x100xf32>) -> (tensor<40x100xf32>) {
    %p = graph.matmul %a, %b : (tensor<40x300xf32>, tensor<300x100xf32>) -> tensor<40x100xf32>
    fused.yield %p : tensor<40x100xf32>
  }
  %z = fused.kernel(%a = %x : tensor<40x300xf32>, %b = %w : tensor<300x100xf32>) -> (tensor<40x100xf32>) attributes {schedule = {kind = "library"}} {
    %p = graph.matmul %a, %b : (tensor<40x300xf32>, tensor<300x100xf32>) -> tensor<40x100xf32>
    fused.yield %p : tensor<40x100xf32>
  }
  func.return %y, %z : tensor<40x100xf32>, tensor<40x100xf32>
}

// -----

// The filters of a convolution of few positions: a row for each channel and tap, a column for each filter.
// CHECK-LABEL: func.func @filters(
// CHECK-SAME:    %w_packed: tensor<3x270x48xf32> {graph.prepared = @filters.prepare}
// CHECK-NEXT:      %y = fused.kernel(%a = %x : tensor<2x30x14x14xf32>, %w_packed_1 = %w_packed : tensor<3x270x48xf32>) -> (tensor<2x130x14x14xf32>) {
// CHECK-NEXT:        %0 = graph.permute_dims %w_packed_1 {axes = array<i64: 1, 0, 2>} : (tensor<3x270x48xf32>) -> tensor<270x3x48xf32>
// CHECK-NEXT:        %1 = graph.reshape %0 {shape = array<i64: 270, 144>} : (tensor<270x3x48xf32>) -> tensor<270x144xf32>
// CHECK-NEXT:        %2 = graph.slice %1 {starts = array<i64: 0, 0>, stops = array<i64: 270, 130>, steps = array<i64: 1, 1>} : (tensor<270x144xf32>) -> tensor<270x130xf32>
// CHECK-NEXT:        %3 = graph.permute_dims %2 {axes = array<i64: 1, 0>} : (tensor<270x130xf32>) -> tensor<130x270xf32>
// CHECK-NEXT:        %4 = graph.reshape %3 {shape = array<i64: 130, 30, 3, 3>} : (tensor<130x270xf32>) -> tensor<130x30x3x3xf32>
// CHECK-NEXT:        %p = graph.conv %a, %4 {pads = array<i64: 1, 1, 1, 1>}
// WHY: remark: [pack-weights] packed: {{.*}}'filters.prepare' makes width=48 bytes=155520
func.func @filters(%x: tensor<2x30x14x14xf32>, %w: tensor<130x30x3x3xf32> {graph.frozen}) -> tensor<2x130x14x14xf32> {
  %y = fused.kernel(%a = %x : tensor<2x30x14x14xf32>, %b = %w : tensor<130x30x3x3xf32>) -> (tensor<2x130x14x14xf32>) {
    %p = graph.conv %a, %b {pads = array<i64: 1, 1, 1, 1>} : (tensor<2x30x14x14xf32>, tensor<130x30x3x3xf32>) -> tensor<2x130x14x14xf32>
    fused.yield %p : tensor<2x130x14x14xf32>
  }
  func.return %y : tensor<2x130x14x14xf32>
}

// -----

// Not: many positions; groups; a gradient, whose taps are read backwards; few terms; few filters.
// CHECK-LABEL: func.func @filters_left(
// CHECK-NOT:     @filters_left.prepare
// WHY: remark: [pack-weights] positions: {{.*}} reads its right operand as it is: its 289 positions fill vectors
// WHY: remark: [pack-weights] positions: {{.*}}: it has groups, or reads its windows backwards
// WHY: remark: [pack-weights] positions: {{.*}}: it has groups, or reads its windows backwards
// WHY: remark: [pack-weights] positions: {{.*}}: its sums are of 32 products
// WHY: remark: [pack-weights] positions: {{.*}}: its 8 filters fill no vector
func.func @filters_left(%x: tensor<1x128x17x17xf32>, %y: tensor<1x128x7x7xf32>, %z: tensor<1x32x7x7xf32>, %v: tensor<128x128x1x1xf32> {graph.frozen}, %w: tensor<128x64x3x3xf32> {graph.frozen}, %u: tensor<128x128x3x3xf32> {graph.frozen}, %t: tensor<512x32x1x1xf32> {graph.frozen}, %s: tensor<8x128x5x5xf32> {graph.frozen})
    -> (tensor<1x128x17x17xf32>, tensor<1x128x7x7xf32>, tensor<1x128x7x7xf32>, tensor<1x512x7x7xf32>, tensor<1x8x7x7xf32>) {
  %0 = fused.kernel(%a = %x : tensor<1x128x17x17xf32>, %b = %v : tensor<128x128x1x1xf32>) -> (tensor<1x128x17x17xf32>) {
    %p = graph.conv %a, %b : (tensor<1x128x17x17xf32>, tensor<128x128x1x1xf32>) -> tensor<1x128x17x17xf32>
    fused.yield %p : tensor<1x128x17x17xf32>
  }
  %1 = fused.kernel(%a = %y : tensor<1x128x7x7xf32>, %b = %w : tensor<128x64x3x3xf32>) -> (tensor<1x128x7x7xf32>) {
    %p = graph.conv %a, %b {pads = array<i64: 1, 1, 1, 1>, groups = 2 : i64} : (tensor<1x128x7x7xf32>, tensor<128x64x3x3xf32>) -> tensor<1x128x7x7xf32>
    fused.yield %p : tensor<1x128x7x7xf32>
  }
  %2 = fused.kernel(%a = %y : tensor<1x128x7x7xf32>, %b = %u : tensor<128x128x3x3xf32>) -> (tensor<1x128x7x7xf32>) {
    %p = graph.conv_transpose %a, %b {pads = array<i64: 1, 1, 1, 1>} : (tensor<1x128x7x7xf32>, tensor<128x128x3x3xf32>) -> tensor<1x128x7x7xf32>
    fused.yield %p : tensor<1x128x7x7xf32>
  }
  %3 = fused.kernel(%a = %z : tensor<1x32x7x7xf32>, %b = %t : tensor<512x32x1x1xf32>) -> (tensor<1x512x7x7xf32>) {
    %p = graph.conv %a, %b : (tensor<1x32x7x7xf32>, tensor<512x32x1x1xf32>) -> tensor<1x512x7x7xf32>
    fused.yield %p : tensor<1x512x7x7xf32>
  }
  %4 = fused.kernel(%a = %y : tensor<1x128x7x7xf32>, %b = %s : tensor<8x128x5x5xf32>) -> (tensor<1x8x7x7xf32>) {
    %p = graph.conv %a, %b {pads = array<i64: 2, 2, 2, 2>} : (tensor<1x128x7x7xf32>, tensor<8x128x5x5xf32>) -> tensor<1x8x7x7xf32>
    fused.yield %p : tensor<1x8x7x7xf32>
  }
  func.return %0, %1, %2, %3, %4 : tensor<1x128x17x17xf32>, tensor<1x128x7x7xf32>, tensor<1x128x7x7xf32>, tensor<1x512x7x7xf32>, tensor<1x8x7x7xf32>
}

// -----

// Bytes that bytes meet are in groups of four rows, the same for signed and unsigned ones.
// CHECK-LABEL: func.func @bytes(
// CHECK-SAME:      %w_packed: tensor<7x76x32x4xi8> {graph.prepared = @bytes.prepare})
// CHECK-NEXT:      %y = fused.kernel(%a = %x : tensor<40x301xui8>, %w_packed_1 = %w_packed : tensor<7x76x32x4xi8>) -> (tensor<40x200xi32>) {
// CHECK-NEXT:        %0 = graph.permute_dims %w_packed_1 {axes = array<i64: 1, 3, 0, 2>}
// CHECK-NEXT:        %1 = graph.reshape %0 {shape = array<i64: 304, 224>}
// CHECK-NEXT:        %2 = graph.slice %1
// CHECK:           %z = fused.kernel(%a = %s : tensor<40x301xi8>, %w_packed_1 = %w_packed : tensor<7x76x32x4xi8>)
// CHECK:         func.func private @bytes.prepare
// CHECK:             graph.pad {{.*}}pads = array<i64: 0, 0, 3, 24>
// CHECK:             graph.permute_dims {{.*}}axes = array<i64: 2, 0, 3, 1>
func.func @bytes(%x: tensor<40x301xui8>, %s: tensor<40x301xi8>, %w: tensor<301x200xi8> {graph.frozen}) -> (tensor<40x200xi32>, tensor<40x200xi32>) {
  %y = fused.kernel(%a = %x : tensor<40x301xui8>, %b = %w : tensor<301x200xi8>) -> (tensor<40x200xi32>) {
    %p = graph.matmul %a, %b {dtype = i32} : (tensor<40x301xui8>, tensor<301x200xi8>) -> tensor<40x200xi32>
    fused.yield %p : tensor<40x200xi32>
  }
  %z = fused.kernel(%a = %s : tensor<40x301xi8>, %b = %w : tensor<301x200xi8>) -> (tensor<40x200xi32>) {
    %p = graph.matmul %a, %b {dtype = i32} : (tensor<40x301xi8>, tensor<301x200xi8>) -> tensor<40x200xi32>
    fused.yield %p : tensor<40x200xi32>
  }
  func.return %y, %z : tensor<40x200xi32>, tensor<40x200xi32>
}

// -----

// Tiles of few rows are as wide as registers hold sums: where vectors are narrow and memory holds the operand, its panels are
// read whole all the same, as one stretch each.
// CHECK-LABEL: func.func @few(
// CHECK-SAME:      %w_packed: tensor<16x1024x96xf32>
// CHECK-SAME:      %s_packed: tensor<5x256x80xf32>
// NARROW-LABEL: func.func @few(
// NARROW-SAME:      %w_packed: tensor<96x1024x16xf32>
// NARROW-SAME:      %w_packed_1: tensor<48x1024x32xf32>
// NARROW-SAME:      %s_packed: tensor<5x256x80xf32>
func.func @few(%x: tensor<4x1024xf32>, %y: tensor<2x1024xf32>, %z: tensor<4x256xf32>, %w: tensor<1024x1536xf32> {graph.frozen}, %s: tensor<256x400xf32> {graph.frozen}) -> (tensor<4x1536xf32>, tensor<2x1536xf32>, tensor<4x400xf32>) {
  %p = fused.kernel(%a = %x : tensor<4x1024xf32>, %b = %w : tensor<1024x1536xf32>) -> (tensor<4x1536xf32>) {
    %0 = graph.matmul %a, %b : (tensor<4x1024xf32>, tensor<1024x1536xf32>) -> tensor<4x1536xf32>
    fused.yield %0 : tensor<4x1536xf32>
  }
  %q = fused.kernel(%a = %y : tensor<2x1024xf32>, %b = %w : tensor<1024x1536xf32>) -> (tensor<2x1536xf32>) {
    %0 = graph.matmul %a, %b : (tensor<2x1024xf32>, tensor<1024x1536xf32>) -> tensor<2x1536xf32>
    fused.yield %0 : tensor<2x1536xf32>
  }
  %r = fused.kernel(%a = %z : tensor<4x256xf32>, %b = %s : tensor<256x400xf32>) -> (tensor<4x400xf32>) {
    %0 = graph.matmul %a, %b : (tensor<4x256xf32>, tensor<256x400xf32>) -> tensor<4x400xf32>
    fused.yield %0 : tensor<4x400xf32>
  }
  func.return %p, %q, %r : tensor<4x1536xf32>, tensor<2x1536xf32>, tensor<4x400xf32>
}
