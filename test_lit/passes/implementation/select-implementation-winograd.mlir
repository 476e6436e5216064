// RUN: fuse-opt %s --split-input-file --wrap-kernels --select-implementation=numerics=finite --remarks 2>&1 | filecheck %s
// RUN: fuse-opt %s --split-input-file --wrap-kernels --select-implementation --remarks 2>&1 | filecheck %s --check-prefix=STRICT
// RUN: fuse-opt %s --split-input-file --wrap-kernels --select-implementation=numerics=finite --pack-weights | filecheck %s --check-prefix=PACKED

// Frozen filters of 3x3 neighbours, where an infinity may give NaN: by tiles of 2x2 positions, of filters that are transformed once.
// CHECK: run by "fuse.conv_winograd" (otherwise with: use_implementation = "fuse.conv") {{.*}} refused=fuse.matmul:no-product
// STRICT: run by "fuse.conv" {{.*}} refused=fuse.matmul:no-product,fuse.conv_winograd:numerics
// PACKED-LABEL: func.func @taken(
// PACKED:         implementation = "fuse.conv_winograd"
// PACKED:         graph.winograd_taps %{{.*}} {filters = 64 : i64} : (tensor<1x16x64x64xf32>) -> tensor<64x64x3x3xf32>
// PACKED:       func.func {{.*}}@taken.prepare(
// PACKED-NOT:     graph.winograd_taps
func.func @taken(%x: tensor<1x64x28x28xf32>, %w: tensor<64x64x3x3xf32> {graph.frozen}) -> tensor<1x64x28x28xf32> {
  %y = graph.conv %x, %w {pads = array<i64: 1, 1, 1, 1>} : (tensor<1x64x28x28xf32>, tensor<64x64x3x3xf32>) -> tensor<1x64x28x28xf32>
  func.return %y : tensor<1x64x28x28xf32>
}

// -----

// Filters that would be transformed at each call.
// CHECK: refused=fuse.matmul:no-product,fuse.conv_winograd:not-frozen
func.func @not_frozen(%x: tensor<1x64x28x28xf32>, %w: tensor<64x64x3x3xf32>) -> tensor<1x64x28x28xf32> {
  %y = graph.conv %x, %w {pads = array<i64: 1, 1, 1, 1>} : (tensor<1x64x28x28xf32>, tensor<64x64x3x3xf32>) -> tensor<1x64x28x28xf32>
  func.return %y : tensor<1x64x28x28xf32>
}

// -----

// Positions that are no neighbours.
// CHECK: refused=fuse.matmul:no-product,fuse.conv_winograd:stride
func.func @stride(%x: tensor<1x64x28x28xf32>, %w: tensor<64x64x3x3xf32> {graph.frozen}) -> tensor<1x64x14x14xf32> {
  %y = graph.conv %x, %w {strides = array<i64: 2, 2>, pads = array<i64: 1, 1, 1, 1>} : (tensor<1x64x28x28xf32>, tensor<64x64x3x3xf32>) -> tensor<1x64x14x14xf32>
  func.return %y : tensor<1x64x14x14xf32>
}

// -----

// Other windows.
// CHECK: refused=fuse.matmul:no-product,fuse.conv_winograd:window
func.func @window(%x: tensor<1x64x28x28xf32>, %w: tensor<64x64x5x5xf32> {graph.frozen}) -> tensor<1x64x28x28xf32> {
  %y = graph.conv %x, %w {pads = array<i64: 2, 2, 2, 2>} : (tensor<1x64x28x28xf32>, tensor<64x64x5x5xf32>) -> tensor<1x64x28x28xf32>
  func.return %y : tensor<1x64x28x28xf32>
}

// -----

// Channels that fill no vector.
// CHECK: refused=fuse.matmul:no-product,fuse.conv_winograd:few-channels
func.func @few(%x: tensor<1x3x28x28xf32>, %w: tensor<64x3x3x3xf32> {graph.frozen}) -> tensor<1x64x28x28xf32> {
  %y = graph.conv %x, %w {pads = array<i64: 1, 1, 1, 1>} : (tensor<1x3x28x28xf32>, tensor<64x3x3x3xf32>) -> tensor<1x64x28x28xf32>
  func.return %y : tensor<1x64x28x28xf32>
}

// -----

// Other elements.
// CHECK: fuse.conv_winograd:element-type
func.func @narrow(%x: tensor<1x64x28x28xbf16>, %w: tensor<64x64x3x3xbf16> {graph.frozen}) -> tensor<1x64x28x28xbf16> {
  %y = graph.conv %x, %w {pads = array<i64: 1, 1, 1, 1>} : (tensor<1x64x28x28xbf16>, tensor<64x64x3x3xbf16>) -> tensor<1x64x28x28xbf16>
  func.return %y : tensor<1x64x28x28xbf16>
}

// -----

// Images of unknown number: nothing is chosen before there are numbers.
// PACKED-LABEL: func.func @sized(
// PACKED-NOT:     implementation
func.func @sized(%x: tensor<?x64x28x28xf32, #graph.shape<N, 64, 28, 28>>, %w: tensor<64x64x3x3xf32> {graph.frozen}) -> tensor<?x64x28x28xf32, #graph.shape<N, 64, 28, 28>> {
  %y = graph.conv %x, %w {pads = array<i64: 1, 1, 1, 1>} : (tensor<?x64x28x28xf32, #graph.shape<N, 64, 28, 28>>, tensor<64x64x3x3xf32>) -> tensor<?x64x28x28xf32, #graph.shape<N, 64, 28, 28>>
  func.return %y : tensor<?x64x28x28xf32, #graph.shape<N, 64, 28, 28>>
}
