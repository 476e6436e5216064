// RUN: fuse-opt %s --split-input-file --verify-diagnostics --select-implementation | filecheck %s
// RUN: fuse-opt %s --split-input-file --verify-diagnostics --select-implementation --select-implementation | filecheck %s
// RUN: fuse-opt %s --split-input-file --verify-diagnostics --select-implementation=prefer=numpy.sort,blas.matmul_epilogue | filecheck %s --check-prefix=PREFER
// RUN: fuse-opt %s --split-input-file --verify-diagnostics --select-implementation --remarks 2>&1 | filecheck %s --check-prefix=REMARK

// What takes the op and costs least, or is preferred; what is named already is kept; a kernel of pointwise ops has none.
// CHECK-LABEL: func.func @main(
// CHECK:         %a = fused.kernel(%0 = %x : tensor<4x4xf32>) -> (tensor<4x4xf32>) attributes {implementation = "fuse.matmul"} {
// CHECK:         %b = fused.kernel(%0 = %a : tensor<4x4xf32>) -> (tensor<4x4xf32>) attributes {implementation = "numpy.matmul"} {
// CHECK:         %c = fused.kernel(%0 = %b : tensor<4x4xf32>) -> (tensor<4x4xf32>) {
// PREFER-LABEL: func.func @main(
// PREFER:         %a = fused.kernel(%0 = %x : tensor<4x4xf32>) -> (tensor<4x4xf32>) attributes {implementation = "blas.matmul_epilogue"} {
// PREFER:         %b = fused.kernel(%0 = %a : tensor<4x4xf32>) -> (tensor<4x4xf32>) attributes {implementation = "numpy.matmul"} {
// REMARK: select-implementation.mlir:17:3: remark: [select-implementation] selected: 'fused.kernel' 'graph.matmul': run by "fuse.matmul" (otherwise with: use_implementation = "blas.matmul") us=0.0 second=blas.matmul second_us=1.0 candidates=4
// REMARK: remark: [select-implementation] kept: 'fused.kernel' is run by "numpy.matmul", as it says
func.func @main(%x: tensor<4x4xf32>) -> tensor<4x4xf32> {
  %a = fused.kernel(%0 = %x : tensor<4x4xf32>) -> (tensor<4x4xf32>) {
    %1 = graph.matmul %0, %0 : (tensor<4x4xf32>, tensor<4x4xf32>) -> tensor<4x4xf32>
    fused.yield %1 : tensor<4x4xf32>
  }
  %b = fused.kernel(%2 = %a : tensor<4x4xf32>) -> (tensor<4x4xf32>) attributes {implementation = "numpy.matmul"} {
    %3 = graph.matmul %2, %2 : (tensor<4x4xf32>, tensor<4x4xf32>) -> tensor<4x4xf32>
    fused.yield %3 : tensor<4x4xf32>
  }
  %c = fused.kernel(%4 = %b : tensor<4x4xf32>) -> (tensor<4x4xf32>) {
    %5 = graph.exp %4 : (tensor<4x4xf32>) -> tensor<4x4xf32>
    fused.yield %5 : tensor<4x4xf32>
  }
  func.return %c : tensor<4x4xf32>
}

// -----

// What one refuses another one runs, even where the first is named: no code is generated for products of i32.
// CHECK-LABEL: func.func @refused(
// CHECK:         attributes {implementation = "numpy.matmul"} {
// REMARK: selected: 'fused.kernel' 'graph.matmul': run by "numpy.matmul" {{.*}} refused=fuse.matmul:element-type
func.func @refused(%x: tensor<4x4xi32>) -> tensor<4x4xi32> {
  %a = fused.kernel(%0 = %x : tensor<4x4xi32>) -> (tensor<4x4xi32>) attributes {implementation = "fuse.matmul"} {
    %1 = graph.matmul %0, %0 : (tensor<4x4xi32>, tensor<4x4xi32>) -> tensor<4x4xi32>
    fused.yield %1 : tensor<4x4xi32>
  }
  func.return %a : tensor<4x4xi32>
}

// -----

// Not: kernels that the schedule leaves to the reference. A schedule of a library is kept, with one that is called.
// CHECK-LABEL: func.func @scheduled(
// CHECK:         %a = fused.kernel(%0 = %x : tensor<4x4xf32>) -> (tensor<4x4xf32>) attributes {schedule = {kind = "reference"}} {
// CHECK:         %b = fused.kernel(%0 = %a : tensor<4x4xf32>) -> (tensor<4x4xf32>) attributes {schedule = {kind = "library"}, implementation = "blas.matmul"} {
func.func @scheduled(%x: tensor<4x4xf32>) -> tensor<4x4xf32> {
  %a = fused.kernel(%0 = %x : tensor<4x4xf32>) -> (tensor<4x4xf32>) attributes {schedule = {kind = "reference"}} {
    %1 = graph.matmul %0, %0 : (tensor<4x4xf32>, tensor<4x4xf32>) -> tensor<4x4xf32>
    fused.yield %1 : tensor<4x4xf32>
  }
  %b = fused.kernel(%2 = %a : tensor<4x4xf32>) -> (tensor<4x4xf32>) attributes {schedule = {kind = "library"}} {
    %3 = graph.matmul %2, %2 : (tensor<4x4xf32>, tensor<4x4xf32>) -> tensor<4x4xf32>
    fused.yield %3 : tensor<4x4xf32>
  }
  func.return %b : tensor<4x4xf32>
}

// -----

// A directive is a promise, on the op and on the kernel.
// CHECK-LABEL: func.func @promised(
// CHECK:         %a = fused.kernel(%0 = %x : tensor<4x4xf32>) -> (tensor<4x4xf32>) attributes {implementation = "numpy.matmul"} {
// CHECK:         %b = fused.kernel(%0 = %a : tensor<4x4xf32>) -> (tensor<4x4xf32>) attributes {implementation = "numpy.matmul", use_implementation = "numpy.matmul"} {
func.func @promised(%x: tensor<4x4xf32>) -> tensor<4x4xf32> {
  %a = fused.kernel(%0 = %x : tensor<4x4xf32>) -> (tensor<4x4xf32>) {
    %1 = graph.matmul %0, %0 {use_implementation = "numpy.matmul"} : (tensor<4x4xf32>, tensor<4x4xf32>) -> tensor<4x4xf32>
    fused.yield %1 : tensor<4x4xf32>
  }
  %b = fused.kernel(%2 = %a : tensor<4x4xf32>) -> (tensor<4x4xf32>) attributes {use_implementation = "numpy.matmul", implementation = "fuse.matmul"} {
    %3 = graph.matmul %2, %2 : (tensor<4x4xf32>, tensor<4x4xf32>) -> tensor<4x4xf32>
    fused.yield %3 : tensor<4x4xf32>
  }
  func.return %b : tensor<4x4xf32>
}

// -----

// CHECK: error: 'graph.matmul' use_implementation "fuse.matmul" refuses it: element-type; remove the directive or name another one
func.func @broken(%x: tensor<4x4xi32>) -> tensor<4x4xi32> {
  %a = fused.kernel(%0 = %x : tensor<4x4xi32>) -> (tensor<4x4xi32>) {
    %1 = graph.matmul %0, %0 {use_implementation = "fuse.matmul"} : (tensor<4x4xi32>, tensor<4x4xi32>) -> tensor<4x4xi32>
    fused.yield %1 : tensor<4x4xi32>
  }
  func.return %a : tensor<4x4xi32>
}

// -----

// CHECK: error: 'graph.matmul' use_implementation "mkl.matmul" is not among what is allowed: fuse.matmul, numpy.matmul, blas.matmul, blas.matmul_epilogue; remove the directive or name another one
func.func @unheard(%x: tensor<4x4xf32>) -> tensor<4x4xf32> {
  %a = fused.kernel(%0 = %x : tensor<4x4xf32>) -> (tensor<4x4xf32>) {
    %1 = graph.matmul %0, %0 {use_implementation = "mkl.matmul"} : (tensor<4x4xf32>, tensor<4x4xf32>) -> tensor<4x4xf32>
    fused.yield %1 : tensor<4x4xf32>
  }
  func.return %a : tensor<4x4xf32>
}

// -----

// CHECK: error: 'fused.kernel' implementation "numpy.conv" does not run 'graph.matmul': expected one of fuse.matmul, fuse.attention, fuse.attention_gradient, gpu.attention, cublaslt.matmul, cublaslt.matmul_fast, onednn.matmul, onednn.matmul_fast, numpy.matmul, blas.matmul, cublas.matmul, cublas.matmul_fast, blas.matmul_epilogue; remove the property or register the implementation
func.func @unknown(%x: tensor<4x4xf32>) -> tensor<4x4xf32> {
  %a = fused.kernel(%0 = %x : tensor<4x4xf32>) -> (tensor<4x4xf32>) attributes {implementation = "numpy.conv"} {
    %1 = graph.matmul %0, %0 : (tensor<4x4xf32>, tensor<4x4xf32>) -> tensor<4x4xf32>
    fused.yield %1 : tensor<4x4xf32>
  }
  func.return %a : tensor<4x4xf32>
}

// -----

// Nothing is chosen for extents that are not known: the shapes of a call are.
// CHECK-LABEL: func.func @unknown(
// CHECK:         fused.kernel(%{{.*}} = %x : tensor<?x4xf32>) -> (tensor<?x4xf32>) {
// PREFER-LABEL: func.func @unknown(
// REMARK: remark: [select-implementation] unknown-extents: 'fused.kernel' has unknown extents: what runs it is chosen for the shapes of a call (otherwise with: extents in its types)
func.func @unknown(%x: tensor<?x4xf32>) -> tensor<?x4xf32> {
  %a = fused.kernel(%0 = %x : tensor<?x4xf32>) -> (tensor<?x4xf32>) {
    %1 = graph.constant dense<1.0> : tensor<4x4xf32>
    %2 = graph.matmul %0, %1 : (tensor<?x4xf32>, tensor<4x4xf32>) -> tensor<?x4xf32>
    fused.yield %2 : tensor<?x4xf32>
  }
  func.return %a : tensor<?x4xf32>
}
