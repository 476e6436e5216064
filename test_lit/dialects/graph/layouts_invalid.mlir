// RUN: fuse-opt %s --verify-diagnostics --split-input-file | filecheck %s

func.func @f(%x: tensor<4x3xf32, #graph.order<0, 2, 1>>) {
  %r = graph.exp %x : (tensor<4x3xf32, #graph.order<0, 2, 1>>) -> tensor<4x3xf32, #graph.order<0, 2, 1>>
  func.return
}

// CHECK: 'graph.exp' type 'tensor<4x3xf32, #graph.order<0, 2, 1>>': expected an order of 2 axes, got one of 3

// -----

func.func @f(%x: tensor<4x3xf32, #graph.order<0, 0>>) {
  func.return
}

// CHECK: '#graph.order': expected each of the axes 0 to 1 once, got [0, 0]

// -----

func.func @f(%x: tensor<4x3xf32, #graph.panel<axis = 0, width = 0>>) {
  func.return
}

// CHECK: '#graph.panel': expected axis >= 0, width >= 1 and group >= 1, got axis = 0, width = 0, group = 1

// -----

func.func @f(%x: tensor<4x3xf32>) {
  %r = graph.to_layout %x : (tensor<4x3xf32>) -> tensor<4x3xf32, #graph.panel<axis = 1, width = 2>>
  func.return
}

// CHECK: 'graph.to_layout' type 'tensor<4x3xf32, #graph.panel<axis = 1, width = 2>>': expected an extent of axis 1 that is a multiple of 2, got 3; graph.pad it

// -----

func.func @f(%x: tensor<6x4xf32>) {
  %r = graph.to_layout %x : (tensor<6x4xf32>) -> tensor<6x4xf32, #graph.panel<axis = 1, width = 2, group = 4>>
  func.return
}

// CHECK: expected a multiple of 4 as extent of the innermost other axis, got 6; graph.pad it

// -----

func.func @f(%x: tensor<4x3xf32, #graph.encoding<#graph.order<1, 0>>>) {
  func.return
}

// CHECK: '#graph.encoding': expected two parts or more; write one without '#graph.encoding'

// -----

func.func @f(%x: tensor<4x4xf32, #graph.encoding<#graph.panel<axis = 1, width = 2>, #graph.order<1, 0>>>) {
  func.return
}

// CHECK: '#graph.encoding': expected parts of different kinds, orders before panels

// -----

func.func @f(%x: tensor<4x4xf32, #graph.encoding<#graph.order<1, 0>, "csr">>) {
  func.return
}

// CHECK: '#graph.encoding': expected encodings, got '"csr"'

// -----

// Operands that are read side by side lie in one order.

func.func @f(%x: tensor<4x3xf32, #graph.order<1, 0>>, %y: tensor<4x3xf32>) {
  %r = graph.add %x, %y : (tensor<4x3xf32, #graph.order<1, 0>>, tensor<4x3xf32>) -> tensor<4x3xf32>
  func.return
}

// CHECK: 'graph.add' operands 'tensor<4x3xf32, #graph.order<1, 0>>', 'tensor<4x3xf32>' lie in memory in different orders; convert one by graph.to_layout

// -----

func.func @f(%x: tensor<4x3xf32, #graph.order<1, 0>>) {
  %r = graph.exp %x : (tensor<4x3xf32, #graph.order<1, 0>>) -> tensor<4x3xf32>
  func.return
}

// CHECK: 'graph.exp' result 0: expected 'tensor<4x3xf32, #graph.order<1, 0>>', in the order of its operands, got 'tensor<4x3xf32>'; convert it behind by graph.to_layout

// -----

// Ops that only libraries run take row-major order alone.

func.func @f(%x: tensor<4x3xf32, #graph.order<1, 0>>) {
  %r = graph.sort %x : (tensor<4x3xf32, #graph.order<1, 0>>) -> tensor<4x3xf32>
  func.return
}

// CHECK: 'graph.sort' takes operands and gives results in row-major order, got 'tensor<4x3xf32, #graph.order<1, 0>>'; convert it before by graph.to_layout

// -----

func.func @f() {
  %r = graph.constant dense<1.0> : tensor<4x3xf32, #graph.order<1, 0>>
  func.return
}

// CHECK: error: {{.*}}row-major order, got 'tensor<4x3xf32, #graph.order<1, 0>>'

// -----

func.func @f(%x: tensor<4x3xf32>) {
  %r = graph.to_layout %x : (tensor<4x3xf32>) -> tensor<3x4xf32>
  func.return
}

// CHECK: 'graph.to_layout' result 0: expected 'tensor<4x3xf32>' as its operands give, got 'tensor<3x4xf32>'
