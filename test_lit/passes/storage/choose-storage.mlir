// RUN: fuse-opt %s --split-input-file --choose-storage=numerics=fast --remarks 2>&1 | filecheck %s
// RUN: fuse-opt %s --split-input-file --choose-storage --remarks 2>&1 | filecheck %s --check-prefix=STRICT

// A dense product of what is absent with an infinity is NaN: without a word nothing is converted.
// STRICT-NOT: graph.to_storage %
// STRICT: remark: [choose-storage] finite: 'graph.matmul' would cost less on a dense copy, which is the same where what it multiplies is finite (otherwise with: choose-storage=numerics=fast, or graph.to_storage in front of it)

// Of a matrix that is nearly full one dense copy is made for both products; a sum reads what is stored.
// CHECK-LABEL: func.func @full
func.func @full(%a: tensor<256x256xf32, #graph.csr<capacity = 60000>>, %x: tensor<256x512xf32>) -> (tensor<256xf32>, tensor<256x512xf32>, tensor<512x256xf32>) {
  // CHECK: graph.sum %a {{.*}}#graph.csr
  // CHECK: [[D:%.*]] = graph.to_storage %a : (tensor<256x256xf32, #graph.csr<capacity = 60000>>) -> tensor<256x256xf32>
  // CHECK-NOT: graph.to_storage
  // CHECK: graph.matmul [[D]], %x : (tensor<256x256xf32>, tensor<256x512xf32>) -> tensor<256x512xf32>
  // CHECK: graph.matmul %{{.*}}, [[D]]
  %0 = graph.sum %a {axes = array<i64: 1>, keepdims = false} : (tensor<256x256xf32, #graph.csr<capacity = 60000>>) -> tensor<256xf32>
  %1 = graph.matmul %a, %x : (tensor<256x256xf32, #graph.csr<capacity = 60000>>, tensor<256x512xf32>) -> tensor<256x512xf32>
  %2 = graph.permute_dims %1 {axes = array<i64: 1, 0>} : (tensor<256x512xf32>) -> tensor<512x256xf32>
  %3 = graph.matmul %2, %a : (tensor<512x256xf32>, tensor<256x256xf32, #graph.csr<capacity = 60000>>) -> tensor<512x256xf32>
  func.return %0, %1, %3 : tensor<256xf32>, tensor<256x512xf32>, tensor<512x256xf32>
}

// -----

// What is sparse stays as it is given, and what is dense, too, however many zeros it has.
// CHECK-LABEL: func.func @sparse
func.func @sparse(%a: tensor<256x256xf32, #graph.csr<capacity = 600>>, %b: tensor<256x256xf32>, %x: tensor<256x512xf32>) -> (tensor<256x512xf32>, tensor<256x512xf32>) {
  // CHECK-NOT: graph.to_storage
  // CHECK: func.return
  %0 = graph.matmul %a, %x : (tensor<256x256xf32, #graph.csr<capacity = 600>>, tensor<256x512xf32>) -> tensor<256x512xf32>
  %1 = graph.matmul %b, %x : (tensor<256x256xf32>, tensor<256x512xf32>) -> tensor<256x512xf32>
  func.return %0, %1 : tensor<256x512xf32>, tensor<256x512xf32>
}

// -----

// The copy does not pay for one product in each call; of a frozen matrix it is made once.
// CHECK-LABEL: func.func @each_call
func.func @each_call(%a: tensor<512x512xf32, #graph.csr<capacity = 100000>>, %x: tensor<512x64xf32>) -> tensor<512x64xf32> {
  // CHECK-NOT: graph.to_storage
  // CHECK: func.func @once
  %0 = graph.matmul %a, %x : (tensor<512x512xf32, #graph.csr<capacity = 100000>>, tensor<512x64xf32>) -> tensor<512x64xf32>
  func.return %0 : tensor<512x64xf32>
}
func.func @once(%a: tensor<512x512xf32, #graph.csr<capacity = 100000>> {graph.frozen}, %x: tensor<512x64xf32>) -> tensor<512x64xf32> {
  // CHECK: graph.to_storage
  %0 = graph.matmul %a, %x : (tensor<512x512xf32, #graph.csr<capacity = 100000>>, tensor<512x64xf32>) -> tensor<512x64xf32>
  func.return %0 : tensor<512x64xf32>
}
// CHECK: choose-storage.mlir:17:3: remark: [choose-storage] dense: 'graph.matmul' is computed on a dense copy, which costs less stored_us={{.*}} dense_us={{.*}} copy_us={{.*}} bytes=262144
// CHECK: choose-storage.mlir:19:3: remark: [choose-storage] dense
// CHECK: [choose-storage] stored: 'graph.matmul' is computed on what is stored, which costs no more (otherwise with: graph.to_storage in front of it) stored_us=
// CHECK: [choose-storage] stored
// CHECK: [choose-storage] dense: {{.*}} copy_us=0.0
