// RUN: fuse-opt %s --split-input-file --infer-shapes=symbols | filecheck %s
// RUN: fuse-opt %s --split-input-file --infer-shapes=symbols --infer-shapes=symbols | filecheck %s

// Extents of arguments are symbols; what follows is a size.
// CHECK-LABEL: func.func @sizes(%k: tensor<?x4xf32, #graph.shape<past{least = 0}, 4>> {graph.dims = ["past", ""]}, %x: tensor<?x4xf32, #graph.shape<seq, 4>> {graph.dims = ["seq", ""]}) -> tensor<?xf32, #graph.shape<4*past{least = 0} + 4*seq>> attributes {graph.symbols = {past = {least = 0 : i64}}} {
// CHECK-NEXT:      %c = graph.concat %k, %x {axis = 0 : i64} : (tensor<?x4xf32, #graph.shape<past{least = 0}, 4>>, tensor<?x4xf32, #graph.shape<seq, 4>>) -> tensor<?x4xf32, #graph.shape<past{least = 0} + seq, 4>>
// CHECK-NEXT:      %r = graph.reshape %c {shape = array<i64: -1>} : (tensor<?x4xf32, #graph.shape<past{least = 0} + seq, 4>>) -> tensor<?xf32, #graph.shape<4*past{least = 0} + 4*seq>>
// CHECK-NEXT:      func.return %r : tensor<?xf32, #graph.shape<4*past{least = 0} + 4*seq>>
// CHECK-NEXT:    }
func.func @sizes(%k: tensor<?x4xf32> {graph.dims = ["past", ""]}, %x: tensor<?x4xf32> {graph.dims = ["seq", ""]}) -> tensor<?xf32>
    attributes {graph.symbols = {past = {least = 0}}} {
  %c = graph.concat %k, %x {axis = 0 : i64} : (tensor<?x4xf32>, tensor<?x4xf32>) -> tensor<?x4xf32>
  %r = graph.reshape %c {shape = array<i64: -1>} : (tensor<?x4xf32>) -> tensor<?xf32>
  func.return %r : tensor<?xf32>
}

// -----

// What an op needs to be equal becomes one symbol, and a number where it has to be one; kernels have sizes, too.
// CHECK-LABEL: func.func @equal(%x: tensor<?xf32, #graph.shape<x.0>>, %y: tensor<?xf32, #graph.shape<x.0>>, %z: tensor<?x8xf32, #graph.shape<z.0, 8>>, %w: tensor<8xf32>) -> tensor<?x8xf32, #graph.shape<z.0, 8>> attributes {graph.equal = [["x.0", "y.0"]]} {
// CHECK-NEXT:      %0 = graph.add %x, %y : (tensor<?xf32, #graph.shape<x.0>>, tensor<?xf32, #graph.shape<x.0>>) -> tensor<?xf32, #graph.shape<x.0>>
// CHECK-NEXT:      %1 = fused.kernel(%a = %z : tensor<?x8xf32, #graph.shape<z.0, 8>>, %b = %w : tensor<8xf32>) -> (tensor<?x8xf32, #graph.shape<z.0, 8>>) {
// CHECK-NEXT:        %2 = graph.add %a, %b : (tensor<?x8xf32, #graph.shape<z.0, 8>>, tensor<8xf32>) -> tensor<?x8xf32, #graph.shape<z.0, 8>>
// CHECK-NEXT:        fused.yield %2 : tensor<?x8xf32, #graph.shape<z.0, 8>>
// CHECK-NEXT:      }
// CHECK-NEXT:      func.return %1 : tensor<?x8xf32, #graph.shape<z.0, 8>>
// CHECK-NEXT:    }
func.func @equal(%x: tensor<?xf32>, %y: tensor<?xf32>, %z: tensor<?x?xf32>, %w: tensor<8xf32>) -> tensor<?x?xf32> {
  %0 = graph.add %x, %y : (tensor<?xf32>, tensor<?xf32>) -> tensor<?xf32>
  %1 = fused.kernel(%a = %z : tensor<?x?xf32>, %b = %w : tensor<8xf32>) -> (tensor<?x?xf32>) {
    %2 = graph.add %a, %b : (tensor<?x?xf32>, tensor<8xf32>) -> tensor<?x?xf32>
    fused.yield %2 : tensor<?x?xf32>
  }
  func.return %1 : tensor<?x?xf32>
}

// -----

// A function of known extents stays as it is.
// CHECK-LABEL: func.func @static(%x: tensor<8xf32>) -> tensor<8xf32> {
// CHECK-NEXT:      %0 = graph.exp %x : (tensor<8xf32>) -> tensor<8xf32>
// CHECK-NEXT:      func.return %0 : tensor<8xf32>
// CHECK-NEXT:    }
func.func @static(%x: tensor<8xf32>) -> tensor<8xf32> {
  %0 = graph.exp %x : (tensor<8xf32>) -> tensor<8xf32>
  func.return %0 : tensor<8xf32>
}

// So do the extents of three arguments, in turn: one group has all names.
// CHECK-LABEL: func.func @in_turn(
// CHECK-SAME: attributes {graph.equal = {{\[\[}}"k.2", "v.2"], ["q.0", "k.0", "v.0"]]}
func.func @in_turn(%q: tensor<?x2x?x8xf32>, %k: tensor<?x2x?x8xf32>, %v: tensor<?x2x?x8xf32>) -> tensor<?x2x?x8xf32> {
  %0 = graph.scaled_dot_product_attention %q, %k, %v : (tensor<?x2x?x8xf32>, tensor<?x2x?x8xf32>, tensor<?x2x?x8xf32>) -> tensor<?x2x?x8xf32>
  func.return %0 : tensor<?x2x?x8xf32>
}
