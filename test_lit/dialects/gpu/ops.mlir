// RUN: fuse-opt %s | filecheck %s
// RUN: fuse-opt %s --print-op-generic | fuse-opt | filecheck %s
// RUN: fuse-opt %s --print-op-generic | filecheck %s --check-prefix=GENERIC

builtin.module attributes {gpu.container_module} {
  // CHECK:       builtin.module attributes {gpu.container_module} {

  "gpu.module"() <{sym_name = "kernels"}> ({
    "gpu.func"() <{function_type = (memref<8xf32>, index) -> (), known_block_size = array<i32: 32, 1, 1>}> ({
    ^bb0(%x: memref<8xf32>, %i: index, %row: memref<32xf32, #gpu.address_space<workgroup>>, %own: memref<1xf32, #gpu.address_space<private>>):
      %one = arith.constant 1 : i32
      %all = arith.constant 32 : i32
      %value = memref.load %x[%i] : memref<8xf32>
      %shuffled, %valid = gpu.shuffle xor %value, %one, %all : f32
      %first, %has_first = "gpu.shuffle"(%value, %one, %all) <{mode = #gpu<shuffle_mode idx>}> : (f32, i32, i32) -> (f32, i1)
      "gpu.barrier"() : () -> ()
      "gpu.return"() : () -> ()
    }) {sym_name = "row_sum", gpu.kernel, workgroup_attributions = 1 : i64, private_attributions = 1 : i64} : () -> ()
    "gpu.func"() <{function_type = (i32) -> i32}> ({
    ^bb0(%x: i32):
      "gpu.return"(%x) : (i32) -> ()
    }) {sym_name = "device_function"} : () -> ()
    "gpu.func"() <{function_type = (index) -> (), kernel}> ({
    ^bb0(%x: index):
      "gpu.return"() : () -> ()
    }) {sym_name = "upstream", gpu.known_block_size = array<i32: 64, 1, 1>} : () -> ()
  }) : () -> ()
  // CHECK-NEXT:    "gpu.module"() <{sym_name = "kernels"}> ({
  // CHECK-NEXT:      "gpu.func"() <{function_type = (memref<8xf32>, index) -> (), known_block_size = array<i32: 32, 1, 1>}> ({
  // CHECK-NEXT:      ^bb{{.*}}(%x: memref<8xf32>, %i: index, %row: memref<32xf32, #gpu.address_space<workgroup>>, %own: memref<1xf32, #gpu.address_space<private>>):
  // CHECK:             %shuffled, %valid = gpu.shuffle xor %value, %one, %all : f32
  // CHECK-NEXT:        %first, %has_first = gpu.shuffle idx %value, %one, %all : f32
  // CHECK-NEXT:        "gpu.barrier"() : () -> ()
  // CHECK-NEXT:        "gpu.return"() : () -> ()
  // CHECK-NEXT:      }) {sym_name = "row_sum", gpu.kernel, workgroup_attributions = 1 : i64, private_attributions = 1 : i64} : () -> ()
  // CHECK-NEXT:      "gpu.func"() <{function_type = (i32) -> i32}> ({
  // CHECK:             "gpu.return"(%x) : (i32) -> ()
  // CHECK-NEXT:      }) {sym_name = "device_function"} : () -> ()
  // CHECK-NEXT:      "gpu.func"() <{function_type = (index) -> (), kernel}> ({
  // CHECK:           }) {sym_name = "upstream", gpu.known_block_size = array<i32: 64, 1, 1>} : () -> ()
  // GENERIC:         %shuffled, %valid = "gpu.shuffle"(%value, %one, %all) <{mode = #gpu<shuffle_mode xor>}> : (f32, i32, i32) -> (f32, i1)

  func.func private @cpu_kernel(memref<8x2xf32>)

  func.func @program(%a: memref<8x4xf32>, %b: memref<4x2xf32>, %x: memref<8xf32>) {
    %arena = gpu.arena {alignment = 64 : i64} : memref<4096xi8>
    %one = arith.constant 1 : index
    %warp = arith.constant 32 : index
    gpu.bulk 0 {
      %shift = arith.constant 1024 : index
      %c = memref.view %arena[%shift][] : memref<4096xi8> to memref<8x2xf32>
      gpu.library_call "numpy.matmul"(%a, %b) outs(%c) {operation = "graph.matmul", config = {axis = 1 : i64}} : (memref<8x4xf32>, memref<4x2xf32>) outs(memref<8x2xf32>)
      gpu.library_call "numpy.zeros"() outs(%c) {operation = "graph.zeros"} : () outs(memref<8x2xf32>)
      %space = memref.view %arena[%shift][] : memref<4096xi8> to memref<64xi8>
      gpu.library_call "mine.zeros"() outs(%c) {operation = "graph.zeros"} : () outs(memref<8x2xf32>) workspace(%space : memref<64xi8>)
      %flat = memref.reinterpret_cast %c to offset: [0], sizes: [16], strides: [1] : memref<8x2xf32> to memref<16xf32, strided<[1]>>
      func.call @cpu_kernel(%c) : (memref<8x2xf32>) -> ()
      "gpu.launch_func"(%one, %one, %one, %warp, %one, %one, %x, %one) <{kernel = @kernels::@row_sum, operandSegmentSizes = array<i32: 0, 1, 1, 1, 1, 1, 1, 0, 0, 0, 0, 2, 0>}> : (index, index, index, index, index, index, memref<8xf32>, index) -> ()
    }
    gpu.bulk 1 attributes {reason = "empty"} {}
    func.return
  }
  // CHECK:         func.func @program
  // CHECK-NEXT:      %arena = gpu.arena {alignment = 64 : i64} : memref<4096xi8>
  // CHECK:           gpu.bulk 0 {
  // CHECK-NEXT:        %shift = arith.constant 1024 : index
  // CHECK-NEXT:        %c = memref.view %arena[%shift][] : memref<4096xi8> to memref<8x2xf32>
  // CHECK-NEXT:        gpu.library_call "numpy.matmul"(%a, %b) outs(%c) {operation = "graph.matmul", config = {axis = 1 : i64}} : (memref<8x4xf32>, memref<4x2xf32>) outs(memref<8x2xf32>)
  // CHECK-NEXT:        gpu.library_call "numpy.zeros"() outs(%c) {operation = "graph.zeros"} : () outs(memref<8x2xf32>)
  // CHECK-NEXT:        %space = memref.view
  // CHECK-NEXT:        gpu.library_call "mine.zeros"() outs(%c) {operation = "graph.zeros"} : () outs(memref<8x2xf32>) workspace(%space : memref<64xi8>)
  // CHECK:             func.call @cpu_kernel(%c) : (memref<8x2xf32>) -> ()
  // CHECK-NEXT:        "gpu.launch_func"
  // CHECK-NEXT:      }
  // CHECK-NEXT:      gpu.bulk 1 attributes {reason = "empty"} {
  // CHECK-NEXT:      }
  // CHECK-NEXT:      func.return
  // GENERIC:         %arena = "gpu.arena"() <{alignment = 64 : i64}> : () -> memref<4096xi8>
  // GENERIC:         "gpu.bulk"() <{segment = 0 : i64}> ({
  // GENERIC:           "gpu.library_call"(%a, %b, %c) <{implementation = "numpy.matmul"
  // GENERIC-SAME:        operandSegmentSizes = array<i32: 2, 1, 0>
}
