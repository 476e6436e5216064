// RUN: fuse-opt %s --verify-diagnostics --split-input-file | filecheck %s

"gpu.func"() <{function_type = () -> ()}> ({
  "gpu.return"() : () -> ()
}) {sym_name = "f"} : () -> ()

// CHECK: 'gpu.func' expects parent op 'gpu.module'

// -----

func.func @f() {
  "gpu.return"() : () -> ()
}

// CHECK: 'gpu.return' expects parent op 'gpu.func'

// -----

"gpu.module"() <{sym_name = "m"}> ({
  "gpu.func"() <{function_type = (index) -> index}> ({
  ^bb0(%x: index):
    "gpu.return"(%x) : (index) -> ()
  }) {sym_name = "f", gpu.kernel} : () -> ()
}) : () -> ()

// CHECK: 'gpu.func' op expected a kernel without results, got results (index); pass a memref for each result and store into it

// -----

"gpu.module"() <{sym_name = "m"}> ({
  "gpu.func"() <{function_type = (index) -> ()}> ({
  }) {sym_name = "f"} : () -> ()
}) : () -> ()

// CHECK: 'gpu.func' op expected a body, got an empty region; add an entry block that ends with gpu.return

// -----

"gpu.module"() <{sym_name = "m"}> ({
  "gpu.func"() <{function_type = (index) -> ()}> ({
  ^bb0(%x: f32):
    "gpu.return"() : () -> ()
  }) {sym_name = "f"} : () -> ()
}) : () -> ()

// CHECK: 'gpu.func' op expected entry block arguments that begin with the function's inputs (index), got (f32); make the function type and the entry block agree

// -----

"gpu.module"() <{sym_name = "m"}> ({
  "gpu.func"() <{function_type = () -> ()}> ({
    "gpu.return"() : () -> ()
  }) {sym_name = "f", workgroup_attributions = 1 : i64} : () -> ()
}) : () -> ()

// CHECK: 'gpu.func' op expected workgroup_attributions between 0 and 0, the entry block arguments after the inputs, got 1; add a block argument for each workgroup buffer

// -----

"gpu.module"() <{sym_name = "m"}> ({
  "gpu.func"() <{function_type = () -> ()}> ({
  ^bb0(%w: memref<4xf32, #gpu.address_space<workgroup>>):
    "gpu.return"() : () -> ()
  }) {sym_name = "f", workgroup_attributions = 1 : i64, private_attributions = 1 : i64} : () -> ()
}) : () -> ()

// CHECK: 'gpu.func' op expected private_attributions = 0, the entry block arguments left over by 0 inputs and 1 workgroup buffers, got 1; count each buffer once

// -----

"gpu.module"() <{sym_name = "m"}> ({
  "gpu.func"() <{function_type = () -> ()}> ({
  ^bb0(%w: memref<4xf32, #gpu.address_space<private>>):
    "gpu.return"() : () -> ()
  }) {sym_name = "f", workgroup_attributions = 1 : i64} : () -> ()
}) : () -> ()

// CHECK: 'gpu.func' op expected a memref with memory space #gpu.address_space<workgroup> for entry block argument #0, a workgroup buffer, got memref<4xf32, #gpu.address_space<private>>; change its type, or correct function_type and workgroup_attributions

// -----

"gpu.module"() <{sym_name = "m"}> ({
  "gpu.func"() <{function_type = () -> (), known_block_size = array<i32: 32>}> ({
    "gpu.return"() : () -> ()
  }) {sym_name = "f"} : () -> ()
}) : () -> ()

// CHECK: 'gpu.func' op expected three positive sizes in known_block_size, got (32,); write one size for each of x, y and z, 1 where a dimension is unused

// -----

"gpu.module"() <{sym_name = "m"}> ({
  "gpu.func"() <{function_type = () -> (), known_block_size = array<i32: 32, 1, 1>}> ({
    "gpu.return"() : () -> ()
  }) {sym_name = "f", gpu.known_block_size = array<i32: 64, 1, 1>} : () -> ()
}) : () -> ()

// CHECK: 'gpu.func' op expected the property known_block_size and the attribute gpu.known_block_size to agree, got (32, 1, 1) and (64, 1, 1); remove the attribute

// -----

"gpu.module"() <{sym_name = "m"}> ({
  "gpu.func"() <{function_type = (f32) -> f32}> ({
  ^bb0(%x: f32):
    "gpu.return"() : () -> ()
  }) {sym_name = "f"} : () -> ()
}) : () -> ()

// CHECK: 'gpu.return' op expected the results of 'f' (f32), got (); return those, or change the function type

// -----

func.func @f(%x: vector<2x2xf32>, %i: i32) {
  %s, %v = gpu.shuffle xor %x, %i, %i : vector<2x2xf32>
  func.return
}

// CHECK: 'gpu.shuffle' op expected a scalar or a vector of one fixed dimension, got vector<2x2xf32>; shuffle its rows one by one

// -----

%arena = gpu.arena {alignment = 64 : i64} : memref<?xi8>

// CHECK: 'gpu.arena' op expected a result of type memref<Nxi8>, got memref<?xi8>; write the number of bytes as its only dimension

// -----

%arena = gpu.arena {alignment = 48 : i64} : memref<16xi8>

// CHECK: 'gpu.arena' op expected an alignment that is a power of two, got 48; use 64 on CPUs and 256 on GPUs

// -----

func.func @f(%a: memref<4xf32>) {
  gpu.library_call "numpy.add"(%a) outs() {operation = "graph.add"} : (memref<4xf32>) outs()
  func.return
}

// CHECK: 'gpu.library_call' op expected at least one output buffer, got none; list the buffers that the routine writes in outs(...)

// -----

func.func @f(%a: memref<4xf32>, %t: tensor<4xf32>) {
  gpu.library_call "numpy.add"(%a, %t) outs(%a) {operation = "graph.add"} : (memref<4xf32>, tensor<4xf32>) outs(memref<4xf32>)
  func.return
}

// CHECK: 'gpu.library_call' op expected a memref as input #1, got tensor<4xf32>; give tensors and scalars a buffer first; a constant scalar belongs in config

// -----

func.func @f(%a: memref<4xf32>) {
  gpu.library_call ""() outs(%a) {operation = "graph.add"} : () outs(memref<4xf32>)
  func.return
}

// CHECK: 'gpu.library_call' op expected a name as its implementation, got ""; write one, as in "numpy.matmul"

// -----

func.func @f(%a: memref<4xf32>) {
  gpu.library_call "mine.sort"() outs(%a) {operation = "graph.sort"} : () outs(memref<4xf32>) workspace(%a : memref<4xf32>)
  func.return
}

// CHECK: 'gpu.library_call' op expected bytes as its workspace, got memref<4xf32>; give it a view of the arena of type memref<Nxi8>

// -----

gpu.bulk -1 {}

// CHECK: 'gpu.bulk' op expected a segment number of 0 or more, got -1; count the segments from 0

// -----

"gpu.bulk"() <{segment = 0 : i64}> ({
^bb0(%x: index):
}) : () -> ()

// CHECK: 'gpu.bulk' op expected a body without block arguments, got (index); use the values from outside directly

// -----

gpu.bulk 0 {
  gpu.bulk 1 {}
}

// CHECK: 'gpu.bulk' op expected no bulk within segment 0, got a nested 'gpu.bulk' of segment 1; move its launches into the outer one, or write the two one after the other

// -----

func.func @f(%a: memref<4xf32>, %i: index) {
  gpu.bulk 2 {
    %x = memref.load %a[%i] : memref<4xf32>
  }
  func.return
}

// CHECK: 'gpu.bulk' op expected only launches and what computes their operands (gpu.launch_func, func.call, gpu.library_call, memref.view, memref.reinterpret_cast, arith.constant, gpu.size) in segment 2, got 'memref.load'; move it in front of the segment, or end the segment before it
