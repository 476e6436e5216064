// RUN: fuse-opt %s --split-input-file --wrap-kernels --convert-fused-to-gpu | filecheck %s
// RUN: fuse-opt %s --split-input-file --wrap-kernels --convert-fused-to-gpu --convert-fused-to-gpu | filecheck %s

// A thread for each element, those behind the last one idle; an intermediate value has a range of the arena.
// CHECK:       builtin.module attributes {gpu.container_module} {
// CHECK-NEXT:    "gpu.module"() <{sym_name = "kernels"}> ({
// CHECK-NEXT:      func.func private @fo_tanh_f32(f32) -> f32
// CHECK-NEXT:      "gpu.func"() <{function_type = (memref<600xf32>, memref<600xf32>) -> (), known_block_size = array<i32: 128, 1, 1>}> ({
// CHECK-NEXT:      ^{{.*}}(%x: memref<600xf32>, %a: memref<600xf32>):
// CHECK-NEXT:        %block = "gpu.block_id"() <{dimension = #gpu<dim x>}> : () -> index
// CHECK-NEXT:        %thread = "gpu.thread_id"() <{dimension = #gpu<dim x>}> : () -> index
// CHECK-NEXT:        [[C128:%.*]] = arith.constant 128 : index
// CHECK-NEXT:        [[FIRST:%.*]] = arith.muli %block, [[C128]] : index
// CHECK-NEXT:        %i = arith.addi [[FIRST]], %thread : index
// CHECK-NEXT:        [[C600:%.*]] = arith.constant 600 : index
// CHECK-NEXT:        [[INSIDE:%.*]] = arith.cmpi slt, %i, [[C600]] : index
// CHECK-NEXT:        scf.if [[INSIDE]] {
// CHECK-NEXT:          %x_1 = memref.load %x[%i] : memref<600xf32>
// CHECK-NEXT:          %a_1 = math.exp %x_1 : f32
// CHECK-NEXT:          memref.store %a_1, %a[%i] : memref<600xf32>
// CHECK-NEXT:        }
// CHECK-NEXT:        "gpu.return"() : () -> ()
// CHECK-NEXT:      }) {sym_name = "kernel_exp", gpu.kernel
// CHECK:         func.func @pointwise(%x: memref<600xf32>, %r: memref<600xf32>)
// CHECK-SAME:        fused.results = [{kind = "buffer", number = 0 : i64
// CHECK:           %arena = gpu.arena {alignment = 256 : i64} : memref<2400xi8>
// CHECK:           %a = memref.view %arena
// CHECK:           gpu.bulk 0 {
// CHECK-NEXT:        "gpu.launch_func"({{.*}}, %x, %a) <{kernel = @kernels::@kernel_exp
// CHECK:           gpu.bulk 1 {
// CHECK-NEXT:        "gpu.launch_func"({{.*}}, %a, %r) <{kernel = @kernels::@kernel_tanh
func.func @pointwise(%x: tensor<600xf32>) -> tensor<600xf32> {
  %a = graph.exp %x : (tensor<600xf32>) -> tensor<600xf32>
  %r = graph.tanh %a : (tensor<600xf32>) -> tensor<600xf32>
  func.return %r : tensor<600xf32>
}

// -----

// A block for each row: partial sums of threads, of warps by shuffles, and of the block by shared memory and one barrier.
// Threads take vectors; a kernel whose threads take elements is launched where %x does not begin at a multiple of 16 bytes.
// CHECK:       ^{{.*}}(%x: memref<614400xf32>, %r: memref<300xf32>, %r_slots: memref<8xf32, #gpu.address_space<workgroup>>, %x_vector: memref<4xf32, #gpu.address_space<private>>):
// CHECK:         %r_{{.*}} = scf.for %vector = %thread to {{.*}} step {{.*}} iter_args({{.*}}) -> (f32) {
// CHECK-NEXT:      [[SCALED:%.*]] = arith.muli %vector, {{.*}} : index
// CHECK-NEXT:      [[PLACE:%.*]] = arith.addi {{.*}}, [[SCALED]] : index
// CHECK-NEXT:      {{.*}} = vector.load %x[[[PLACE]]] : memref<614400xf32>, vector<4xf32>
// CHECK-NEXT:      vector.store {{.*}}, %x_vector
// CHECK:           scf.for %lane =
// CHECK:           fused.unroll
// CHECK-COUNT-5: gpu.shuffle xor
// CHECK:         memref.store {{.*}}, %r_slots[%warp]
// CHECK:         "gpu.barrier"() : () -> ()
// CHECK-NOT:     gpu.barrier
// CHECK:         memref.load %r_slots
// CHECK-COUNT-3: gpu.shuffle xor
// CHECK:         memref.store {{.*}}, %r[%block] : memref<300xf32>
// CHECK:       sym_name = "kernel_sum", gpu.kernel, workgroup_attributions = 1 : i64
// CHECK:       known_grid_size = array<i32: 300, 1, 1>
// CHECK:         %r_{{.*}} = scf.for %column = %thread to {{.*}} step {{.*}} iter_args({{.*}}) -> (f32) {
// CHECK:       sym_name = "kernel_sum_unaligned", gpu.kernel
// CHECK:       "gpu.launch_func"({{.*}}) <{kernel = @kernels::@kernel_sum, {{.*}}}> {fused.aligned = array<i64: 0>, fused.unaligned = @kernels::@kernel_sum_unaligned}
func.func @row(%x: tensor<300x2048xf32>) -> tensor<300xf32> {
  %r = graph.sum %x {axes = array<i64: 1>} : (tensor<300x2048xf32>) -> tensor<300xf32>
  func.return %r : tensor<300xf32>
}

// -----

// A donated argument is written in place: the kernel has one buffer for both. Short rows share a block, a warp each.
// CHECK:       known_block_size = array<i32: 32, 8, 1>
// CHECK-NEXT:  ^{{.*}}(%a: memref<256000xf32>, %a_row: memref<4xf32, #gpu.address_space<private>>, {{.*}}):
// CHECK-NOT:   gpu.barrier
// CHECK:       func.func @in_place(%x: memref<2000x128xf32> {graph.donated})
// CHECK-SAME:      fused.results = [{kind = "donated", number = 0 : i64
func.func @in_place(%x: tensor<2000x128xf32> {graph.donated}) -> tensor<2000x128xf32> {
  %r = fused.kernel(%a = %x : tensor<2000x128xf32>) -> (tensor<2000x128xf32>) attributes {inplace = array<i64: 0, 0>} {
    %m = graph.max %a {axes = array<i64: 1>, keepdims = true} : (tensor<2000x128xf32>) -> tensor<2000x1xf32>
    %s = graph.subtract %a, %m : (tensor<2000x128xf32>, tensor<2000x1xf32>) -> tensor<2000x128xf32>
    fused.yield %s : tensor<2000x128xf32>
  }
  func.return %r : tensor<2000x128xf32>
}

// -----

// A library runs what has no scalar meaning; what has no elements is not launched; without kernels there is no module of them.
// CHECK-NOT:   gpu.module
// CHECK:       gpu.library_call "numpy.matmul"(%x, %w) outs(%r) {operation = "graph.matmul"}
// CHECK-NOT:   gpu.launch_func
func.func @library(%x: tensor<4x8xf32>, %w: tensor<8x2xf32>, %e: tensor<0xf32>) -> (tensor<4x2xf32>, tensor<0xf32>) {
  %r = graph.matmul %x, %w : (tensor<4x8xf32>, tensor<8x2xf32>) -> tensor<4x2xf32>
  %n = graph.negative %e : (tensor<0xf32>) -> tensor<0xf32>
  func.return %r, %n : tensor<4x2xf32>, tensor<0xf32>
}
