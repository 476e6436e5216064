// RUN: fuse-opt %s --split-input-file --verify-diagnostics --plan-memory | filecheck %s

// CHECK: frozen-invalid.mlir:4:{{[0-9]+}}: error: 'twice', argument 0 is donated and frozen
func.func @twice(%x: tensor<8xf32> {graph.donated, graph.frozen}) -> tensor<8xf32> {
  func.return %x : tensor<8xf32>
}

// -----

// CHECK: error: 'number', argument 1 is frozen: expected a tensor, got 'i32'
func.func @number(%x: tensor<8xf32>, %n: i32 {graph.frozen}) -> tensor<8xf32> {
  func.return %x : tensor<8xf32>
}

// -----

// CHECK: error: 'value', argument 0: expected 'graph.frozen' without a value, got '1 : i64'
func.func @value(%x: tensor<8xf32> {graph.frozen = 1 : i64}) -> tensor<8xf32> {
  func.return %x : tensor<8xf32>
}

// -----

// What is frozen is not overwritten.
// CHECK: error: 'fused.kernel' must_inplace cannot be kept: %x is the caller's
func.func @written(%x: tensor<8xf32> {graph.frozen}) -> tensor<8xf32> {
  %a = fused.kernel(%0 = %x : tensor<8xf32>) -> (tensor<8xf32>) attributes {must_inplace, inplace = array<i64: 0, 0>} {
    %1 = graph.exp %0 : (tensor<8xf32>) -> tensor<8xf32>
    fused.yield %1 : tensor<8xf32>
  }
  func.return %a : tensor<8xf32>
}

// -----

// CHECK: error: 'missing', 'graph.prepared': expected another function of the module, got @nowhere
func.func @missing(%x: tensor<8xf32>, %p: tensor<8xf32> {graph.prepared = @nowhere}) -> tensor<8xf32> {
  func.return %p : tensor<8xf32>
}

// -----

// CHECK: error: 'unfit.prepare': expected the type (tensor<8xf32>) -> (tensor<8xf32>), as 'unfit' has it
func.func @unfit(%x: tensor<8xf32> {graph.frozen}, %p: tensor<8xf32> {graph.prepared = @unfit.prepare}) -> tensor<8xf32> {
  func.return %p : tensor<8xf32>
}
func.func private @unfit.prepare(%x: tensor<4xf32>) -> tensor<4xf32> {
  func.return %x : tensor<4xf32>
}

// -----

// CHECK: error: 'shared' prepares arguments of 'one' and 'two': expected one
func.func @one(%p: tensor<8xf32> {graph.prepared = @shared}) -> tensor<8xf32> {
  func.return %p : tensor<8xf32>
}
func.func @two(%p: tensor<8xf32> {graph.prepared = @shared}) -> tensor<8xf32> {
  func.return %p : tensor<8xf32>
}
func.func private @shared() -> tensor<8xf32> {
  %0 = graph.full {value = 1.0 : f32, shape = array<i64: 8>, dtype = f32} : () -> tensor<8xf32>
  func.return %0 : tensor<8xf32>
}

// -----

// CHECK: error: 'first', argument 0 is prepared: expected it behind all that callers give
func.func @first(%p: tensor<8xf32> {graph.prepared = @first.prepare}, %x: tensor<8xf32> {graph.frozen}) -> tensor<8xf32> {
  func.return %p : tensor<8xf32>
}
func.func private @first.prepare(%x: tensor<8xf32>) -> tensor<8xf32> {
  func.return %x : tensor<8xf32>
}
