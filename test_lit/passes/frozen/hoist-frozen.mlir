// RUN: fuse-opt %s --split-input-file --hoist-frozen | filecheck %s
// RUN: fuse-opt %s --split-input-file --hoist-frozen --hoist-frozen | filecheck %s
// RUN: fuse-opt %s --split-input-file --hoist-frozen --remarks=- 2>&1 | filecheck %s --check-prefix=WHY

// A cast is computed once; who reads it reads a further argument.
// CHECK-LABEL: func.func @cast(%x: tensor<8xf32>, %w: tensor<8xf16> {graph.frozen}, %c: tensor<8xf32> {graph.prepared = @cast.prepare})
// CHECK-NEXT:      %y = graph.multiply %x, %c : (tensor<8xf32>, tensor<8xf32>) -> tensor<8xf32>
// CHECK-NEXT:      func.return %y : tensor<8xf32>
// CHECK-NEXT:    }
// CHECK-NEXT:    func.func private @cast.prepare(%w: tensor<8xf16>) -> tensor<8xf32> {
// CHECK-NEXT:      %c = graph.astype %w {dtype = f32} : (tensor<8xf16>) -> tensor<8xf32>
// CHECK-NEXT:      func.return %c : tensor<8xf32>
// CHECK-NEXT:    }
// WHY: hoisted: 'graph.astype' is computed by 'cast.prepare', when a frozen argument changes bytes=32 from_bytes=16
func.func @cast(%x: tensor<8xf32>, %w: tensor<8xf16> {graph.frozen}) -> tensor<8xf32> {
  %c = graph.astype %w {dtype = f32} : (tensor<8xf16>) -> tensor<8xf32>
  %y = graph.multiply %x, %c : (tensor<8xf32>, tensor<8xf32>) -> tensor<8xf32>
  func.return %y : tensor<8xf32>
}

// -----

// The factor of a batch norm: a chain with a constant, of which the last value alone is kept. The constant is read by both.
// CHECK-LABEL: func.func @factor(%x: tensor<4x8xf32>, %gamma: tensor<8xf32> {graph.frozen}, %var: tensor<8xf32> {graph.frozen}, %s: tensor<8xf32> {graph.prepared = @factor.prepare})
// CHECK-NEXT:      %eps = graph.constant
// CHECK-NEXT:      %0 = graph.multiply %x, %s
// CHECK-NEXT:      %1 = graph.add %0, %eps
// CHECK-NEXT:      func.return %1
// CHECK:         func.func private @factor.prepare(%gamma: tensor<8xf32>, %var: tensor<8xf32>) -> tensor<8xf32> {
// CHECK-NEXT:      %eps = graph.constant
// CHECK-NEXT:      %0 = graph.add %var, %eps
// CHECK-NEXT:      %1 = graph.rsqrt %0
// CHECK-NEXT:      %s = graph.multiply %gamma, %1
// CHECK-NEXT:      func.return %s
func.func @factor(%x: tensor<4x8xf32>, %gamma: tensor<8xf32> {graph.frozen}, %var: tensor<8xf32> {graph.frozen}) -> tensor<4x8xf32> {
  %eps = graph.constant dense<1.0e-05> : tensor<f32>
  %0 = graph.add %var, %eps : (tensor<8xf32>, tensor<f32>) -> tensor<8xf32>
  %1 = graph.rsqrt %0 : (tensor<8xf32>) -> tensor<8xf32>
  %s = graph.multiply %gamma, %1 : (tensor<8xf32>, tensor<8xf32>) -> tensor<8xf32>
  %2 = graph.multiply %x, %s : (tensor<4x8xf32>, tensor<8xf32>) -> tensor<4x8xf32>
  %3 = graph.add %2, %eps : (tensor<4x8xf32>, tensor<f32>) -> tensor<4x8xf32>
  func.return %3 : tensor<4x8xf32>
}

// -----

// A kernel moves as a whole, without slots; what follows from prepared arguments does, too, and what nobody reads any more is no
// argument. The plan of the function is dropped.
// CHECK-LABEL: func.func @planned(
// CHECK-SAME:      %w: tensor<8xf32> {graph.frozen}, %k: tensor<8xf32> {graph.prepared = @planned.prepare}) -> tensor<8xf32> {
// CHECK-NEXT:      %y = fused.kernel(
// CHECK-SAME:        attributes {schedule = {kind = "pointwise"}} {
// CHECK:         func.func private @planned.prepare(%w: tensor<8xf32>) -> tensor<8xf32> {
// CHECK:           %k = fused.kernel(%a = %p : tensor<8xf32>) -> (tensor<8xf32>) attributes {schedule = {kind = "pointwise"}} {
// CHECK:           func.return %k
func.func @planned(%x: tensor<8xf32>, %w: tensor<8xf32> {graph.frozen}, %p: tensor<8xf32> {graph.prepared = @planned.prepare}) -> tensor<8xf32>
    attributes {fused.arena = {alignment = 64 : i64, size = 64 : i64, lower_bound = 32 : i64, method = "size"}} {
  %k = fused.kernel(%a = %p : tensor<8xf32>) -> (tensor<8xf32>) attributes {schedule = {kind = "pointwise"}, slots = array<i64: 0>, segment = 0 : i64} {
    %b = graph.exp %a : (tensor<8xf32>) -> tensor<8xf32>
    fused.yield %b : tensor<8xf32>
  }
  %y = fused.kernel(%a = %k : tensor<8xf32>, %b = %x : tensor<8xf32>) -> (tensor<8xf32>) attributes {schedule = {kind = "pointwise"}, slots = array<i64: -1>, segment = 0 : i64} {
    %c = graph.add %a, %b : (tensor<8xf32>, tensor<8xf32>) -> tensor<8xf32>
    fused.yield %c : tensor<8xf32>
  }
  func.return %y : tensor<8xf32>
}
func.func private @planned.prepare(%w: tensor<8xf32>) -> tensor<8xf32> {
  %p = graph.tanh %w : (tensor<8xf32>) -> tensor<8xf32>
  func.return %p : tensor<8xf32>
}

// -----

// A view that a library's op reads is a copy that need not be made again.
// CHECK-LABEL: func.func @copied(
// CHECK-SAME:      %t: tensor<16x8xf16> {graph.prepared = @copied.prepare})
// CHECK-NEXT:      %y = graph.matmul %x, %t
func.func @copied(%x: tensor<4x16xf16>, %w: tensor<8x16xf16> {graph.frozen}) -> tensor<4x8xf16> {
  %t = graph.permute_dims %w {axes = array<i64: 1, 0>} : (tensor<8x16xf16>) -> tensor<16x8xf16>
  %y = graph.matmul %x, %t : (tensor<4x16xf16>, tensor<16x8xf16>) -> tensor<4x8xf16>
  func.return %y : tensor<4x8xf16>
}

// -----

// Not: a view that pointwise ops read. What it is a view of is prepared.
// CHECK-LABEL: func.func @view(%x: tensor<8x4xf32>, %w: tensor<4x8xf32> {graph.frozen}, %e: tensor<4x8xf32> {graph.prepared = @view.prepare})
// CHECK-NEXT:      %t = graph.permute_dims %e
// CHECK-NEXT:      %y = graph.add %x, %t
// WHY: free-view: 'graph.permute_dims' is computed in each call, as a view costs nothing
func.func @view(%x: tensor<8x4xf32>, %w: tensor<4x8xf32> {graph.frozen}) -> tensor<8x4xf32> {
  %e = graph.exp %w : (tensor<4x8xf32>) -> tensor<4x8xf32>
  %t = graph.permute_dims %e {axes = array<i64: 1, 0>} : (tensor<4x8xf32>) -> tensor<8x4xf32>
  %y = graph.add %x, %t : (tensor<8x4xf32>, tensor<8x4xf32>) -> tensor<8x4xf32>
  func.return %y : tensor<8x4xf32>
}

// -----

// Not: what is much larger than what it is made from. Where a smaller value is made of it, that is prepared, by a copy of the op.
// CHECK-LABEL: func.func @larger(
// CHECK-SAME:      %v: tensor<8xf32> {graph.frozen}, %s: tensor<64xf32> {graph.prepared = @larger.prepare})
// CHECK:           %o = graph.multiply
// CHECK-NEXT:      %y = graph.add %x, %o
// CHECK:         func.func private @larger.prepare(%u: tensor<64x1xf32>, %v: tensor<8xf32>) -> tensor<64xf32> {
// CHECK-NEXT:      %o = graph.multiply
// CHECK-NEXT:      %s = graph.sum %o
// WHY: larger: 'graph.multiply' is computed in each call: it is larger than what it is made from (otherwise with: max-growth = 7.11) bytes=2048 from_bytes=288
func.func @larger(%x: tensor<64x8xf32>, %u: tensor<64x1xf32> {graph.frozen}, %v: tensor<8xf32> {graph.frozen}) -> (tensor<64x8xf32>, tensor<64xf32>) {
  %o = graph.multiply %u, %v : (tensor<64x1xf32>, tensor<8xf32>) -> tensor<64x8xf32>
  %y = graph.add %x, %o : (tensor<64x8xf32>, tensor<64x8xf32>) -> tensor<64x8xf32>
  %s = graph.sum %o {axes = array<i64: 1>, keepdims = false} : (tensor<64x8xf32>) -> tensor<64xf32>
  func.return %y, %s : tensor<64x8xf32>, tensor<64xf32>
}

// -----

// Not: constants, ranges, random numbers, which no frozen argument has a part in; ops with directives.
// CHECK-LABEL: func.func @others(%x: tensor<8xf32>, %w: tensor<8xf32> {graph.frozen}) -> tensor<8xf32> {
// CHECK-NOT:     @others.prepare
func.func @others(%x: tensor<8xf32>, %w: tensor<8xf32> {graph.frozen}) -> tensor<8xf32> {
  %r = graph.random_uniform {seed = 7 : i64, shape = array<i64: 8>, dtype = f32} : () -> tensor<8xf32>
  %e = graph.exp %r : (tensor<8xf32>) -> tensor<8xf32>
  %k = graph.exp %w {no_fuse} : (tensor<8xf32>) -> tensor<8xf32>
  %a = graph.add %x, %e : (tensor<8xf32>, tensor<8xf32>) -> tensor<8xf32>
  %y = graph.add %a, %k : (tensor<8xf32>, tensor<8xf32>) -> tensor<8xf32>
  func.return %y : tensor<8xf32>
}

// -----

// Not: a call that the program's caller makes.
// CHECK-LABEL: func.func @call(
// CHECK-NOT:     @call.prepare
func.func @call(%x: tensor<8xf32>, %w: tensor<8xf32> {graph.frozen}) -> tensor<8xf32> {
  %e = torch.aten %w {callee = "aten.erfinv.default", number = 0 : i64, arguments = "%w"} : (tensor<8xf32>) -> tensor<8xf32>
  %y = graph.add %x, %e : (tensor<8xf32>, tensor<8xf32>) -> tensor<8xf32>
  func.return %y : tensor<8xf32>
}

// -----

// Not: a function without frozen arguments.
// CHECK-LABEL: func.func @none(%x: tensor<8xf32>, %w: tensor<8xf32>) -> tensor<8xf32> {
// CHECK-NEXT:      %e = graph.exp %w
func.func @none(%x: tensor<8xf32>, %w: tensor<8xf32>) -> tensor<8xf32> {
  %e = graph.exp %w : (tensor<8xf32>) -> tensor<8xf32>
  %y = graph.add %x, %e : (tensor<8xf32>, tensor<8xf32>) -> tensor<8xf32>
  func.return %y : tensor<8xf32>
}
