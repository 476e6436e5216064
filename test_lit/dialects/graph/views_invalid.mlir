// RUN: fuse-opt %s --verify-diagnostics --split-input-file | filecheck %s

func.func @f(%x: tensor<4x3xf32>) {
  %r = graph.reshape %x {shape = array<i64: 5, -1>} : (tensor<4x3xf32>) -> tensor<5x2xf32>
  func.return
}

// CHECK: 'graph.reshape' cannot reshape [4, 3] (12 elements) to [5, -1] (a multiple of 5 elements)

// -----

func.func @f(%x: tensor<4x3xf32>) {
  %r = graph.reshape %x {shape = array<i64: -1, -1>} : (tensor<4x3xf32>) -> tensor<4x3xf32>
  func.return
}

// CHECK: 'graph.reshape' attribute 'shape': expected extents >= 0, at most one of them -1 or ?, got [-1, -1]

// -----

func.func @f(%x: tensor<4x3xf32>) {
  %r = graph.broadcast_to %x {shape = array<i64: -1, 4, 3>} : (tensor<4x3xf32>) -> tensor<1x4x3xf32>
  func.return
}

// CHECK: 'graph.broadcast_to' attribute 'shape': expected extents >= 0, or -1 or ? for those of the operand's axes, got [-1, 4, 3]

// -----

func.func @f(%x: tensor<4x3xf32>) {
  %r = graph.broadcast_to %x {shape = array<i64: 4, 6>} : (tensor<4x3xf32>) -> tensor<4x6xf32>
  func.return
}

// CHECK: 'graph.broadcast_to' operand shapes 4x3, 4x6 do not broadcast: dimension -1 has extents 3 and 6; make them equal or 1

// -----

func.func @f(%x: tensor<4x3xf32>) {
  %r = graph.broadcast_to %x {shape = array<i64: 4, 1>} : (tensor<4x3xf32>) -> tensor<4x1xf32>
  func.return
}

// CHECK: 'graph.broadcast_to' shape [4, 3] does not broadcast to [4, 1]

// -----

func.func @f(%x: tensor<4x3xf32>) {
  %r = graph.squeeze %x {axes = array<i64: 1>} : (tensor<4x3xf32>) -> tensor<4xf32>
  func.return
}

// CHECK: 'graph.squeeze' axis 1 of [4, 3]: expected extent 1, got 3

// -----

func.func @f(%u: tensor<?x3xf32>) {
  %r = graph.squeeze %u : (tensor<?x3xf32>) -> tensor<?x3xf32>
  func.return
}

// CHECK: 'graph.squeeze' extents of [?, 3] are unknown; name the 'axes' of extent 1

// -----

func.func @f(%x: tensor<4x3xf32>) {
  %r = graph.expand_dims %x : (tensor<4x3xf32>) -> tensor<1x4x3xf32>
  func.return
}

// CHECK: 'graph.expand_dims' expected one of the attributes 'axis' and 'axes'

// -----

func.func @f(%x: tensor<4x3xf32>) {
  %r = graph.expand_dims %x {axes = array<i64: 0, -4>} : (tensor<4x3xf32>) -> tensor<1x1x4x3xf32>
  func.return
}

// CHECK: 'graph.expand_dims' axes [0, -4] name an axis twice

// -----

func.func @f(%x: tensor<4x3xf32>) {
  %r = graph.expand_dims %x {axis = 3 : i64} : (tensor<4x3xf32>) -> tensor<4x3x1xf32>
  func.return
}

// CHECK: 'graph.expand_dims' axis 3 is out of range for rank 3; expected -3 <= axis < 3

// -----

func.func @f(%x: tensor<4x3xf32>) {
  %r = graph.slice %x {starts = array<i64: 0>, stops = array<i64: 1>} : (tensor<4x3xf32>) -> tensor<1x3xf32>
  func.return
}

// CHECK: 'graph.slice' expected 2 starts, stops and steps, one for each axis of the operand

// -----

func.func @f(%x: tensor<4x3xf32>) {
  %r = graph.flip %x {axes = array<i64: 0, -2>} : (tensor<4x3xf32>) -> tensor<4x3xf32>
  func.return
}

// CHECK: 'graph.flip' axes [0, -2] name an axis twice

// -----

func.func @f(%x: tensor<4x3xf32>) {
  %r = graph.select %x {index = 4 : i64} : (tensor<4x3xf32>) -> tensor<3xf32>
  func.return
}

// CHECK: 'graph.select' attribute 'index': expected -4 <= index < 4, got 4

// -----

func.func @f(%x: tensor<4x3xf32>, %y: tensor<4xf32>) {
  %r = graph.slice_scatter %x, %y {starts = array<i64: 0, 0>, stops = array<i64: 2, 3>} : (tensor<4x3xf32>, tensor<4xf32>) -> tensor<4x3xf32>
  func.return
}

// CHECK: 'graph.slice_scatter' operand 'update': expected shape [2, 3], got [4]

// -----

func.func @f(%y: tensor<4xf32>, %d: tensor<4xf64>) {
  %r = graph.slice_scatter %y, %d {starts = array<i64: 0>, stops = array<i64: 4>} : (tensor<4xf32>, tensor<4xf64>) -> tensor<4xf32>
  func.return
}

// CHECK: 'graph.slice_scatter' operand 'update': element types differ; insert graph.astype

// -----

func.func @f(%x: tensor<4x3xf32>, %y: tensor<4xf32>) {
  %r = graph.select_scatter %x, %y {axis = 0 : i64, index = 1 : i64} : (tensor<4x3xf32>, tensor<4xf32>) -> tensor<4x3xf32>
  func.return
}

// CHECK: 'graph.select_scatter' operand 'update': expected shape [3], got [4]

// -----

func.func @f() {
  %r = graph.concat : () -> tensor<4xf32>
  func.return
}

// CHECK: 'graph.concat' expected at least one operand

// -----

func.func @f(%x: tensor<4x3xf32>, %y: tensor<4xf32>) {
  %r = graph.concat %x, %y : (tensor<4x3xf32>, tensor<4xf32>) -> tensor<4x3xf32>
  func.return
}

// CHECK: 'graph.concat' operand 1: expected shape [4, 3] but for axis 0, got [4]

// -----

func.func @f(%y: tensor<4xf32>, %d: tensor<4xf64>) {
  %r = graph.concat %y, %d : (tensor<4xf32>, tensor<4xf64>) -> tensor<8xf32>
  func.return
}

// CHECK: 'graph.concat' operand 1: element types differ; insert graph.astype

// -----

func.func @f() {
  %r = graph.stack : () -> tensor<0x4xf32>
  func.return
}

// CHECK: 'graph.stack' expected at least one operand

// -----

func.func @f(%y: tensor<4xf32>) {
  %r = graph.split %y : (tensor<4xf32>) -> tensor<4xf32>
  func.return
}

// CHECK: 'graph.split' expected one of the attributes 'sizes' and 'parts'

// -----

func.func @f(%y: tensor<4xf32>) {
  %r:3 = graph.split %y {parts = 3 : i64} : (tensor<4xf32>) -> (tensor<1xf32>, tensor<1xf32>, tensor<1xf32>)
  func.return
}

// CHECK: 'graph.split' attribute 'parts': expected a positive divisor of the extent 4, got 3; or give 'sizes'

// -----

func.func @f(%y: tensor<4xf32>) {
  %r:2 = graph.split %y {sizes = array<i64: 1, 2>} : (tensor<4xf32>) -> (tensor<1xf32>, tensor<2xf32>)
  func.return
}

// CHECK: 'graph.split' attribute 'sizes': expected extents >= 0 that make 4 together, got [1, 2]

// -----

func.func @f(%y: tensor<4xf32>) {
  %r:3 = graph.split %y {parts = 2 : i64} : (tensor<4xf32>) -> (tensor<2xf32>, tensor<2xf32>, tensor<2xf32>)
  func.return
}

// CHECK: 'graph.split' expected 2 results, got 3

// -----

func.func @f(%u: tensor<?x3xf32>) {
  %r = graph.unstack %u : (tensor<?x3xf32>) -> tensor<3xf32>
  func.return
}

// CHECK: 'graph.unstack' axis 0 of [?, 3]: expected a static extent; run infer-shapes

// -----

func.func @f(%y: tensor<4xf32>) {
  %r = graph.unstack %y : (tensor<4xf32>) -> tensor<f32>
  func.return
}

// CHECK: 'graph.unstack' expected 4 results, got 1

// -----

func.func @f(%x: tensor<4x3xf32>) {
  %r = graph.pad %x {pads = array<i64: 1, 1>} : (tensor<4x3xf32>) -> tensor<6x3xf32>
  func.return
}

// CHECK: 'graph.pad' attribute 'pads': expected 4 integers, got [1, 1]

// -----

func.func @f(%y: tensor<4xf32>) {
  %r = graph.pad %y {pads = array<i64: 1, 1>, mode = "mirror"} : (tensor<4xf32>) -> tensor<6xf32>
  func.return
}

// CHECK: 'graph.pad' attribute 'mode': expected "constant", "edge", "reflect" or "wrap", got "mirror"

// -----

func.func @f(%y: tensor<4xf32>) {
  %r = graph.pad %y {pads = array<i64: 1, 1>, mode = "edge", value = 1 : i64} : (tensor<4xf32>) -> tensor<6xf32>
  func.return
}

// CHECK: 'graph.pad' attribute 'value': expected with mode "constant" only, got mode "edge"

// -----

func.func @f(%y: tensor<4xf32>) {
  %r = graph.pad %y {pads = array<i64: -3, -2>} : (tensor<4xf32>) -> tensor<0xf32>
  func.return
}

// CHECK: 'graph.pad' attribute 'pads': 5 elements are taken from the 4 of axis 0

// -----

func.func @f(%i: tensor<4xi32>) {
  %r = graph.pad %i {pads = array<i64: 1, 1>, value = 1.0 : f64} : (tensor<4xi32>) -> tensor<6xi32>
  func.return
}

// CHECK: 'graph.pad' attribute 'value': expected an integer for elements of i32, got 1.000000e+00 : f64

// -----

func.func @f(%i: tensor<4xi32>) {
  %r = graph.pad %i {pads = array<i64: 1, 1>, value = 2147483648 : i64} : (tensor<4xi32>) -> tensor<6xi32>
  func.return
}

// CHECK: 'graph.pad' attribute 'value': expected -2147483648 to 2147483647 for elements of i32, got 2147483648

// -----

func.func @f(%x: tensor<4x3xf32>) {
  %r = graph.roll %x {shifts = array<i64: 1, 2>, axes = array<i64: 0>} : (tensor<4x3xf32>) -> tensor<4x3xf32>
  func.return
}

// CHECK: 'graph.roll' attribute 'shifts': expected one for each of the axes [0], or one without axes, got [1, 2]

// -----

func.func @f(%y: tensor<4xf32>) {
  %r = graph.tile %y {repeats = array<i64: -1>} : (tensor<4xf32>) -> tensor<4xf32>
  func.return
}

// CHECK: 'graph.tile' attribute 'repeats': expected integers >= 0, got [-1]

// -----

func.func @f(%y: tensor<4xf32>) {
  %r = graph.repeat %y {repeats = -1 : i64} : (tensor<4xf32>) -> tensor<4xf32>
  func.return
}

// CHECK: 'graph.repeat' attribute 'repeats': expected an integer >= 0, got -1

// -----

func.func @f(%x: tensor<4x3xf32>) {
  %r = graph.diagonal %x {axis1 = 0 : i64, axis2 = -2 : i64} : (tensor<4x3xf32>) -> tensor<3xf32>
  func.return
}

// CHECK: 'graph.diagonal' attributes 'axis1' and 'axis2': expected two axes, got 0 twice

// -----

func.func @f(%y: tensor<4xf32>) {
  %r = graph.tril %y : (tensor<4xf32>) -> tensor<4xf32>
  func.return
}

// CHECK: 'graph.tril' expected matrices, of rank 2 or more, got [4]

// -----

func.func @f(%e: tensor<0x3xf32>) {
  %r = graph.pad %e {pads = array<i64: 1, 0, 0, 0>, mode = "edge"} : (tensor<0x3xf32>) -> tensor<1x3xf32>
  func.return
}

// CHECK: 'graph.pad' axis 0 of [0, 3] is empty: mode "edge" has nothing to add
