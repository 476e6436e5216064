// RUN: fuse-opt %s --convert-fused-to-loops --split-input-file | filecheck %s

// A softmax is one function: its rows are the tasks, what two loops of a row need is kept in a buffer with room for whole vectors,
// and what is left over of a row is a vector of which some lanes do nothing.
func.func @softmax(%x: tensor<8x24xf32>) -> tensor<8x24xf32> {
  %r = fused.kernel(%a = %x : tensor<8x24xf32>) -> (tensor<8x24xf32>) {
    %m = graph.max %a {axes = array<i64: 1>, keepdims = true} : (tensor<8x24xf32>) -> tensor<8x1xf32>
    %s = graph.subtract %a, %m : (tensor<8x24xf32>, tensor<8x1xf32>) -> tensor<8x24xf32>
    %e = graph.exp %s : (tensor<8x24xf32>) -> tensor<8x24xf32>
    %t = graph.sum %e {axes = array<i64: 1>, keepdims = true} : (tensor<8x24xf32>) -> tensor<8x1xf32>
    %d = graph.divide %e, %t : (tensor<8x24xf32>, tensor<8x1xf32>) -> tensor<8x24xf32>
    fused.yield %d : tensor<8x24xf32>
  }
  func.return %r : tensor<8x24xf32>
}
// CHECK:      func.func private @kernel_max_subtract_exp_sum_divide(%a: memref<192xf32>, %r: memref<192xf32>, %begin: index, %end: index)
// CHECK-SAME:   fused.tasks = 8 : i64
// CHECK:        %e_row = memref.alloca() {alignment = 64 : i64} : memref<32xf32>
// CHECK:        scf.for %row = %begin to %end
// CHECK:          scf.if
// CHECK:            arith.cmpf ogt
// CHECK:          scf.for
// CHECK:            %e = math.exp %s {fused.nonpositive} : f32
// CHECK:            memref.store %e, %e_row
// CHECK:            arith.addf
// CHECK:          scf.if
// CHECK-NEXT:       memref.load %a
// CHECK:          math.exp
// CHECK:          arith.addf
// CHECK:          scf.if
// CHECK-NEXT:       scf.yield
// CHECK-NEXT:     } else {
// CHECK:          memref.store %{{.*}}, %e_row
// CHECK:          "scf.parallel"
// CHECK-NOT:        math.exp
// CHECK:            memref.load %e_row
// CHECK:      func.func @softmax(%x: memref<8x24xf32>, %r: memref<8x24xf32>)
// CHECK-SAME:   fused.results = [{kind = "buffer", number = 0 : i64, type = memref<8x24xf32>}]
// CHECK:        gpu.bulk 0 {
// CHECK-NEXT:     func.call @kernel_max_subtract_exp_sum_divide

// -----

// Slots and segments are kept, a library runs the product, equal kernels share a function.
func.func @planned(%x: tensor<4x4xf32>, %w: tensor<4x4xf32>) -> tensor<4x4xf32>
    attributes {fused.arena = {size = 128 : i64, alignment = 64 : i64, lower_bound = 128 : i64, method = "hand"}} {
  %a = fused.kernel(%p = %x : tensor<4x4xf32>) -> (tensor<4x4xf32>) attributes {slots = array<i64: 64>, segment = 0 : i64} {
    %r = graph.exp %p : (tensor<4x4xf32>) -> tensor<4x4xf32>
    fused.yield %r : tensor<4x4xf32>
  }
  %b = fused.kernel(%p = %a : tensor<4x4xf32>) -> (tensor<4x4xf32>) attributes {slots = array<i64: 0>, segment = 0 : i64} {
    %r = graph.exp %p : (tensor<4x4xf32>) -> tensor<4x4xf32>
    fused.yield %r : tensor<4x4xf32>
  }
  %c = fused.kernel(%p = %b : tensor<4x4xf32>, %q = %w : tensor<4x4xf32>) -> (tensor<4x4xf32>) attributes {slots = array<i64: -1>} {
    %r = graph.matmul %p, %q : (tensor<4x4xf32>, tensor<4x4xf32>) -> tensor<4x4xf32>
    fused.yield %r : tensor<4x4xf32>
  }
  func.return %c : tensor<4x4xf32>
}
// CHECK:      func.func private @kernel_exp(
// CHECK-NOT:  func.func private
// CHECK:      func.func @planned
// CHECK:        [[ARENA:%.*]] = gpu.arena {alignment = 64 : i64} : memref<128xi8>
// CHECK:        memref.view [[ARENA]]
// CHECK:        gpu.bulk 0 {
// CHECK-NEXT:     func.call @kernel_exp
// CHECK-NEXT:     func.call @kernel_exp
// CHECK-NEXT:   }
// CHECK-NEXT:   gpu.bulk 1 {
// CHECK-NEXT:     gpu.library_call "numpy.matmul"(

// -----

// A reshape of a dimension that a permutation took apart is split again: addresses need no division.
func.func @heads(%x: tensor<8x16x64xf32>) -> tensor<16x512xf32> {
  %r = fused.kernel(%a = %x : tensor<8x16x64xf32>) -> (tensor<16x512xf32>) {
    %t = graph.permute_dims %a {axes = array<i64: 1, 0, 2>} : (tensor<8x16x64xf32>) -> tensor<16x8x64xf32>
    %f = graph.reshape %t {shape = array<i64: 16, 512>} : (tensor<16x8x64xf32>) -> tensor<16x512xf32>
    fused.yield %f : tensor<16x512xf32>
  }
  func.return %r : tensor<16x512xf32>
}
// CHECK:      func.func private @kernel_permute_dims_reshape
// CHECK-SAME:   fused.tasks = 128 : i64
// CHECK:        "scf.parallel"
// CHECK-NOT:      arith.divsi
// CHECK-NOT:      arith.remsi
// CHECK:          scf.reduce

// -----

// In place is one buffer; the donated argument is the result.
func.func @in_place(%x: tensor<32xf32> {graph.donated}) -> tensor<32xf32> {
  %r = fused.kernel(%a = %x : tensor<32xf32>) -> (tensor<32xf32>) attributes {inplace = array<i64: 0, 0>} {
    %e = graph.exp %a : (tensor<32xf32>) -> tensor<32xf32>
    fused.yield %e : tensor<32xf32>
  }
  func.return %r : tensor<32xf32>
}
// CHECK:      func.func private @kernel_exp(%a: memref<32xf32>, %begin: index, %end: index)
// CHECK:      func.func @in_place(%x: memref<32xf32> {graph.donated})
// CHECK-SAME:   fused.results = [{kind = "donated", number = 0 : i64, type = memref<32xf32>}]

// -----

// What is on buffers already stays as it is.
func.func @done(%x: memref<32xf32>) {
  func.return
}
// CHECK:      func.func @done(%x: memref<32xf32>) {
// CHECK-NEXT:   func.return

// -----

// Stores past the caches: blocks of whole lines, of which the outer ones are in part another row's.
func.func @streamed(%x: tensor<8x300xf32>) -> tensor<8x300xf32> {
  %r = fused.kernel(%a = %x : tensor<8x300xf32>) -> (tensor<8x300xf32>)
      attributes {schedule = {kind = "pointwise", stores = "nontemporal"}} {
    %0 = graph.flip %a {axes = array<i64: 0>} : (tensor<8x300xf32>) -> tensor<8x300xf32>
    fused.yield %0 : tensor<8x300xf32>
  }
  func.return %r : tensor<8x300xf32>
}
// CHECK:      func.func private @kernel_flip(%a: memref<2400xf32>, %r: memref<2400xf32>, %begin: index, %end: index)
// CHECK:        %block = memref.alloca() {alignment = 64 : i64} : memref<32xf32>
// CHECK:        %[[OFF:.*]] = func.call @fo_line_offset_f32(%[[FLAT:.*]], %[[ROW:.*]]) : (memref<?xf32>, index) -> index
// CHECK:        %[[FIRST:.*]] = arith.subi %{{.*}}, %[[OFF]] : index
// CHECK:        scf.for %line = %[[FIRST]] to %{{.*}} step %{{.*}} {
// CHECK:          %[[LAST:.*]] = arith.minsi %line
// CHECK-NEXT:     %[[START:.*]] = arith.maxsi %[[LAST]]
// CHECK:          "scf.parallel"
// CHECK:            arith.addi %[[START]], %lane
// CHECK:            memref.store %{{.*}}, %block[%lane]
// CHECK:          func.call @fo_stream_block_f32(
// CHECK:        func.call @fo_stream_end()
// CHECK-NEXT:   func.return

// -----

// A generated product: tiles of sums, and what follows on their block. A small right operand is read where it lies.
// CHECK-LABEL: func.func private @kernel_matmul_relu(
// CHECK:         %sums = memref.alloca() {alignment = 64 : i64}
// CHECK-NOT:     memref.alloca()
// CHECK:         func.call @fo_tile_f32_{{[0-9]+}}x32(
// CHECK:         memref.store {{.*}} : memref<1280xf32>
func.func @product(%x: tensor<40x8xf32>, %w: tensor<8x32xf32>) -> tensor<40x32xf32> {
  %a = fused.kernel(%0 = %x : tensor<40x8xf32>, %1 = %w : tensor<8x32xf32>) -> (tensor<40x32xf32>) attributes {schedule = {kind = "matmul"}} {
    %2 = graph.matmul %0, %1 : (tensor<40x8xf32>, tensor<8x32xf32>) -> tensor<40x32xf32>
    %3 = graph.relu %2 : (tensor<40x32xf32>) -> tensor<40x32xf32>
    fused.yield %3 : tensor<40x32xf32>
  }
  func.return %a : tensor<40x32xf32>
}

// -----

// Where nothing follows, tiles store where the result lies; the right operand of many rows is copied in panels, of which tiles ask for
// the next one.
// CHECK-LABEL: func.func private @kernel_matmul(
// CHECK:         memref.alloca() {alignment = 64 : i64} : memref<{{[0-9]+}}xf32>
// CHECK-NOT:     memref.alloca()
// CHECK:         scf.for %panel
// CHECK:         func.call @fo_tile_f32_6x64n1x1(
// CHECK-NOT:     memref.store
// CHECK:         func.return
func.func @stored(%x: tensor<120x200xf32>, %w: tensor<200x128xf32>) -> tensor<120x128xf32> {
  %a = fused.kernel(%0 = %x : tensor<120x200xf32>, %1 = %w : tensor<200x128xf32>) -> (tensor<120x128xf32>) attributes {schedule = {kind = "matmul"}} {
    %2 = graph.matmul %0, %1 : (tensor<120x200xf32>, tensor<200x128xf32>) -> tensor<120x128xf32>
    fused.yield %2 : tensor<120x128xf32>
  }
  func.return %a : tensor<120x128xf32>
}

// -----

// Few rows of a transposed operand, and few columns: sums along the contracted dimension; a column becomes a row.
// CHECK-LABEL: func.func private @kernel_matmul(
// CHECK:         func.call @fo_dot_f32_4x4(
// CHECK-LABEL: func.func private @kernel_matmul_1(
// CHECK:         func.call @fo_dot_f32_1x4(
func.func @along_depth(%x: tensor<4x200xf32>, %w: tensor<64x200xf32>, %v: tensor<200xf32>) -> (tensor<4x64xf32>, tensor<64xf32>) {
  %a = fused.kernel(%0 = %x : tensor<4x200xf32>, %1 = %w : tensor<64x200xf32>) -> (tensor<4x64xf32>) attributes {schedule = {kind = "matmul"}} {
    %2 = graph.matmul %0, %1 {transpose_rhs = true} : (tensor<4x200xf32>, tensor<64x200xf32>) -> tensor<4x64xf32>
    fused.yield %2 : tensor<4x64xf32>
  }
  %b = fused.kernel(%0 = %w : tensor<64x200xf32>, %1 = %v : tensor<200xf32>) -> (tensor<64xf32>) attributes {schedule = {kind = "matmul"}} {
    %2 = graph.matmul %0, %1 : (tensor<64x200xf32>, tensor<200xf32>) -> tensor<64xf32>
    fused.yield %2 : tensor<64xf32>
  }
  func.return %a, %b : tensor<4x64xf32>, tensor<64xf32>
}

// -----

// Operands of bf16 are widened as they are copied; `math = fast` multiplies pairs of them. Bytes are multiplied in fours;
// those on the left are read where they lie in whole lines; others are copied for a tile at a time.
// CHECK-LABEL: func.func private @kernel_matmul(
// CHECK:         %rows = memref.alloca() {{.*}} : memref<{{[0-9]+}}xf32>
// CHECK:         %panel = memref.alloca() {{.*}} : memref<{{[0-9]+}}xf32>
// CHECK:         arith.extf
// CHECK:         func.call @fo_tile_f32_6x64(
// CHECK-LABEL: func.func private @kernel_matmul_1(
// CHECK:         %panel = memref.alloca() {{.*}} : memref<{{[0-9]+}}xbf16>
// CHECK:         func.call @fo_panel{{s?}}_bf16(
// CHECK:         func.call @fo_tile_bf16_32x32la2(
// CHECK-LABEL: func.func private @kernel_matmul_2(
// CHECK-NOT:     fo_rows_i8
// CHECK:         func.call @fo_panel{{s?}}_i8(
// CHECK:         func.call @fo_tile_i8_
// CHECK-LABEL: func.func private @kernel_matmul_3(
// CHECK:         func.call @fo_panel{{s?}}_ui8(
// CHECK:         func.call @fo_rows_ui8(
// CHECK:         scf.for %panel_
// CHECK:         func.call @fo_tile_ui8_{{[0-9x]+}}l(
func.func @narrow(%x: tensor<96x200xbf16>, %w: tensor<200x128xbf16>, %i: tensor<96x320xi8>, %j: tensor<320x128xi8>, %u: tensor<96x200xui8>, %v: tensor<200x128xi8>)
    -> (tensor<96x128xbf16>, tensor<96x128xbf16>, tensor<96x128xi32>, tensor<96x128xi32>) {
  %a = fused.kernel(%0 = %x : tensor<96x200xbf16>, %1 = %w : tensor<200x128xbf16>) -> (tensor<96x128xbf16>) attributes {schedule = {kind = "matmul"}} {
    %2 = graph.matmul %0, %1 : (tensor<96x200xbf16>, tensor<200x128xbf16>) -> tensor<96x128xbf16>
    fused.yield %2 : tensor<96x128xbf16>
  }
  %b = fused.kernel(%0 = %x : tensor<96x200xbf16>, %1 = %w : tensor<200x128xbf16>) -> (tensor<96x128xbf16>) attributes {schedule = {kind = "matmul", math = "fast"}} {
    %2 = graph.matmul %0, %1 : (tensor<96x200xbf16>, tensor<200x128xbf16>) -> tensor<96x128xbf16>
    fused.yield %2 : tensor<96x128xbf16>
  }
  %c = fused.kernel(%0 = %i : tensor<96x320xi8>, %1 = %j : tensor<320x128xi8>) -> (tensor<96x128xi32>) attributes {schedule = {kind = "matmul"}} {
    %2 = graph.matmul %0, %1 {dtype = i32} : (tensor<96x320xi8>, tensor<320x128xi8>) -> tensor<96x128xi32>
    fused.yield %2 : tensor<96x128xi32>
  }
  %d = fused.kernel(%0 = %u : tensor<96x200xui8>, %1 = %v : tensor<200x128xi8>) -> (tensor<96x128xi32>) attributes {schedule = {kind = "matmul"}} {
    %2 = graph.matmul %0, %1 {dtype = i32} : (tensor<96x200xui8>, tensor<200x128xi8>) -> tensor<96x128xi32>
    fused.yield %2 : tensor<96x128xi32>
  }
  func.return %a, %b, %c, %d : tensor<96x128xbf16>, tensor<96x128xbf16>, tensor<96x128xi32>, tensor<96x128xi32>
}

// -----

// Rows of the input are copied with zeros around them, and taps read them at places of a table; 1 by 1 windows read the input.
// CHECK-LABEL: func.func private @kernel_conv_relu(
// CHECK:         memref.alloca() {alignment = 64 : i64} : memref<9xindex>
// CHECK:         scf.for
// CHECK:         func.call @fo_taps_f32_{{[0-9x]+}}(
// CHECK:         memref.store {{.*}} : memref<1024xf32>
// CHECK-LABEL: func.func private @kernel_conv(
// CHECK-NOT:     memref<9xindex>
// CHECK:         func.call @fo_tile_f32_{{[0-9x]+}}{{[a-z0-9]*}}(
func.func @convolutions(%x: tensor<1x4x8x8xf32>, %w: tensor<16x4x3x3xf32>, %v: tensor<4x16x1x1xf32>) -> tensor<1x4x8x8xf32> {
  %a = fused.kernel(%0 = %x : tensor<1x4x8x8xf32>, %1 = %w : tensor<16x4x3x3xf32>) -> (tensor<1x16x8x8xf32>) attributes {schedule = {kind = "conv"}} {
    %2 = graph.conv %0, %1 {pads = array<i64: 1, 1, 1, 1>} : (tensor<1x4x8x8xf32>, tensor<16x4x3x3xf32>) -> tensor<1x16x8x8xf32>
    %3 = graph.relu %2 : (tensor<1x16x8x8xf32>) -> tensor<1x16x8x8xf32>
    fused.yield %3 : tensor<1x16x8x8xf32>
  }
  %b = fused.kernel(%0 = %a : tensor<1x16x8x8xf32>, %1 = %v : tensor<4x16x1x1xf32>) -> (tensor<1x4x8x8xf32>) attributes {schedule = {kind = "conv"}} {
    %2 = graph.conv %0, %1 : (tensor<1x16x8x8xf32>, tensor<4x16x1x1xf32>) -> tensor<1x4x8x8xf32>
    fused.yield %2 : tensor<1x4x8x8xf32>
  }
  func.return %b : tensor<1x4x8x8xf32>
}

// -----

// A convolution of bf16: one launch widens the weight, for all tasks of the next one, which widens the input as it copies it.
// CHECK-LABEL: func.func private @kernel_conv(
// CHECK-SAME:      memref<160xbf16>, %wide_weight: memref<160xf32>
// CHECK:         arith.extf
// CHECK-LABEL: func.func private @kernel_conv_1(
// CHECK-SAME:      %wide_weight: memref<160xf32>
// CHECK:         %rows = memref.alloca() {{.*}} : memref<{{[0-9]+}}xf32>
// CHECK:         arith.extf
// CHECK:         func.call @fo_tile_f32_
func.func @narrow_convolution(%x: tensor<1x16x9x9xbf16>, %w: tensor<10x16x1x1xbf16>) -> tensor<1x10x9x9xbf16> {
  %a = fused.kernel(%0 = %x : tensor<1x16x9x9xbf16>, %1 = %w : tensor<10x16x1x1xbf16>) -> (tensor<1x10x9x9xbf16>) attributes {schedule = {kind = "conv"}} {
    %2 = graph.conv %0, %1 : (tensor<1x16x9x9xbf16>, tensor<10x16x1x1xbf16>) -> tensor<1x10x9x9xbf16>
    fused.yield %2 : tensor<1x10x9x9xbf16>
  }
  func.return %a : tensor<1x10x9x9xbf16>
}

// -----

// Products that begin elsewhere in the same operand share a function, which has the place as an argument; another one, which reads
// more of it, has a function of its own, without.
// CHECK-LABEL: func.func private @kernel_slice_matmul(
// CHECK-SAME:      %size_start: index, %begin: index, %end: index)
// CHECK-LABEL: func.func private @kernel_slice_matmul_1(
// CHECK-NOT:       %size_start
// CHECK-LABEL: func.func @steps(
// CHECK-DAG:     [[EIGHT:%.*]] = arith.constant 8 : index
// CHECK-DAG:     [[SIXTEEN:%.*]] = arith.constant 16 : index
// CHECK:         func.call @kernel_slice_matmul(%{{.*}}, [[EIGHT]], %{{.*}}, %{{.*}}) :
// CHECK:         func.call @kernel_slice_matmul(%{{.*}}, [[SIXTEEN]], %{{.*}}, %{{.*}}) :
// CHECK:         func.call @kernel_slice_matmul_1(
func.func @steps(%x: tensor<4x24xf32>, %w: tensor<8x16xf32>, %v: tensor<16x8xf32>) -> (tensor<4x16xf32>, tensor<4x16xf32>, tensor<4x8xf32>) {
  %a = fused.kernel(%0 = %x : tensor<4x24xf32>, %1 = %w : tensor<8x16xf32>) -> (tensor<4x16xf32>) attributes {schedule = {kind = "matmul"}} {
    %2 = graph.slice %0 {starts = array<i64: 0, 8>, stops = array<i64: 4, 16>} : (tensor<4x24xf32>) -> tensor<4x8xf32>
    %3 = graph.matmul %2, %1 : (tensor<4x8xf32>, tensor<8x16xf32>) -> tensor<4x16xf32>
    fused.yield %3 : tensor<4x16xf32>
  }
  %b = fused.kernel(%0 = %x : tensor<4x24xf32>, %1 = %w : tensor<8x16xf32>) -> (tensor<4x16xf32>) attributes {schedule = {kind = "matmul"}} {
    %2 = graph.slice %0 {starts = array<i64: 0, 16>, stops = array<i64: 4, 24>} : (tensor<4x24xf32>) -> tensor<4x8xf32>
    %3 = graph.matmul %2, %1 : (tensor<4x8xf32>, tensor<8x16xf32>) -> tensor<4x16xf32>
    fused.yield %3 : tensor<4x16xf32>
  }
  %c = fused.kernel(%0 = %x : tensor<4x24xf32>, %1 = %v : tensor<16x8xf32>) -> (tensor<4x8xf32>) attributes {schedule = {kind = "matmul"}} {
    %2 = graph.slice %0 {starts = array<i64: 0, 8>, stops = array<i64: 4, 24>} : (tensor<4x24xf32>) -> tensor<4x16xf32>
    %3 = graph.matmul %2, %1 : (tensor<4x16xf32>, tensor<16x8xf32>) -> tensor<4x8xf32>
    fused.yield %3 : tensor<4x8xf32>
  }
  func.return %a, %b, %c : tensor<4x16xf32>, tensor<4x16xf32>, tensor<4x8xf32>
}
