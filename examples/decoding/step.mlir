// A step of decoding: a block of attention over a cache of keys and values, which grows by one token. The cache lies in two buffers
// with room for more, which the caller gives up and gets back; the step writes the new token's slice of each and nothing else. One
// program takes any number of tokens and any room: `fuse-run examples/decoding/step.mlir --extents tokens=0..63,room=64 --check`.
func.func @main(%x: tensor<1x64xf32>, %tokens: tensor<i64> {graph.size = "tokens"},
                %keys: tensor<4x?x16xf32> {graph.dims = ["", "room", ""], graph.donated},
                %values: tensor<4x?x16xf32> {graph.dims = ["", "room", ""], graph.donated},
                %w: tensor<64x192xf32>, %b: tensor<192xf32>, %o: tensor<64x64xf32>)
    -> (tensor<1x64xf32>, tensor<4x?x16xf32>, tensor<4x?x16xf32>)
    attributes {graph.symbols = {tokens = {least = 0, most = 4095}, room = {least = 8, most = 4096}}} {
  %0 = graph.matmul %x, %w : (tensor<1x64xf32>, tensor<64x192xf32>) -> tensor<1x192xf32>
  %1 = graph.add %0, %b : (tensor<1x192xf32>, tensor<192xf32>) -> tensor<1x192xf32>
  %q, %k, %v = graph.split %1 {axis = 1 : i64, parts = 3 : i64}
    : (tensor<1x192xf32>) -> (tensor<1x64xf32>, tensor<1x64xf32>, tensor<1x64xf32>)
  %q.heads = graph.reshape %q {shape = array<i64: 4, 1, 16>} : (tensor<1x64xf32>) -> tensor<4x1x16xf32>
  %k.heads = graph.reshape %k {shape = array<i64: 4, 1, 16>} : (tensor<1x64xf32>) -> tensor<4x1x16xf32>
  %v.heads = graph.reshape %v {shape = array<i64: 4, 1, 16>} : (tensor<1x64xf32>) -> tensor<4x1x16xf32>
  %keys.new = graph.update_slice %keys, %k.heads {axis = 1 : i64, start = #graph.size<tokens>}
    : (tensor<4x?x16xf32>, tensor<4x1x16xf32>) -> tensor<4x?x16xf32>
  %values.new = graph.update_slice %values, %v.heads {axis = 1 : i64, start = #graph.size<tokens>}
    : (tensor<4x?x16xf32>, tensor<4x1x16xf32>) -> tensor<4x?x16xf32>
  %keys.all = graph.leading %keys.new {axis = 1 : i64, count = #graph.size<tokens + 1>}
    : (tensor<4x?x16xf32>) -> tensor<4x?x16xf32>
  %values.all = graph.leading %values.new {axis = 1 : i64, count = #graph.size<tokens + 1>}
    : (tensor<4x?x16xf32>) -> tensor<4x?x16xf32>
  %a = graph.scaled_dot_product_attention %q.heads, %keys.all, %values.all
    : (tensor<4x1x16xf32>, tensor<4x?x16xf32>, tensor<4x?x16xf32>) -> tensor<4x1x16xf32>
  %2 = graph.reshape %a {shape = array<i64: 1, 64>} : (tensor<4x1x16xf32>) -> tensor<1x64xf32>
  %3 = graph.matmul %2, %o : (tensor<1x64xf32>, tensor<64x64xf32>) -> tensor<1x64xf32>
  %y = graph.add %x, %3 : (tensor<1x64xf32>, tensor<1x64xf32>) -> tensor<1x64xf32>
  func.return %y, %keys.new, %values.new : tensor<1x64xf32>, tensor<4x?x16xf32>, tensor<4x?x16xf32>
}
