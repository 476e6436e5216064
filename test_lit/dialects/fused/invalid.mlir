// RUN: fuse-opt %s --verify-diagnostics --split-input-file | filecheck %s

func.func @f(%x: tensor<4xf32>) {
  %r = fused.kernel(%a = %x : tensor<4xf32>) -> (tensor<5xf32>) {
    %s = graph.exp %a : (tensor<4xf32>) -> tensor<4xf32>
    fused.yield %s : tensor<4xf32>
  }
  func.return
}

// CHECK: 'fused.yield' of 'fused.kernel': expected (tensor<5xf32>), got (tensor<4xf32>)

// -----

func.func @f(%x: tensor<4xf32>) {
  %r = fused.kernel(%a = %x : tensor<4xf32>) -> (tensor<4xf32>) attributes {slots = array<i64: 0, 64>} {
    %s = graph.exp %a : (tensor<4xf32>) -> tensor<4xf32>
    fused.yield %s : tensor<4xf32>
  }
  func.return
}

// CHECK: 'fused.kernel' property 'slots': expected 1 offsets, one for each result, got 2; remove it and run plan-memory again

// -----

func.func @f(%x: tensor<4xf32>) {
  %r = fused.kernel(%a = %x : tensor<4xf32>) -> (tensor<4xf32>) attributes {schedule = {width = 4 : i64}} {
    %s = graph.exp %a : (tensor<4xf32>) -> tensor<4xf32>
    fused.yield %s : tensor<4xf32>
  }
  func.return
}

// CHECK: 'fused.kernel' property 'schedule': expected an entry kind = "..."

// -----

func.func @f(%x: tensor<4xf32>) {
  %r = fused.kernel(%a = %x : tensor<4xf32>) -> (tensor<4xf32>) attributes {inplace = array<i64: 0>} {
    %s = graph.exp %a : (tensor<4xf32>) -> tensor<4xf32>
    fused.yield %s : tensor<4xf32>
  }
  func.return
}

// CHECK: 'fused.kernel' property 'inplace': expected pairs of result and operand numbers

// -----

func.func @f(%x: tensor<4xf32>) {
  %r = fused.kernel(%a = %x : tensor<4xf32>) -> (tensor<4xf32>) attributes {inplace = array<i64: 0, 1>} {
    %s = graph.exp %a : (tensor<4xf32>) -> tensor<4xf32>
    fused.yield %s : tensor<4xf32>
  }
  func.return
}

// CHECK: 'fused.kernel' property 'inplace': pair (0, 1) is out of range for 1 results and 1 operands

// -----

func.func @f(%x: tensor<4xf32>) {
  %r = fused.kernel(%a = %x : tensor<4xf32>) -> (tensor<4xf32>) attributes {inplace = array<i64: 0, 0, 0, 0>} {
    %s = graph.exp %a : (tensor<4xf32>) -> tensor<4xf32>
    fused.yield %s : tensor<4xf32>
  }
  func.return
}

// CHECK: 'fused.kernel' property 'inplace': a result or an operand is in two pairs

// -----

func.func @f(%x: tensor<4xf32>) {
  %r = fused.kernel(%a = %x : tensor<4xf32>) -> (tensor<4xf32>) {
    %s = builtin.unrealized_conversion_cast %a : tensor<4xf32> to tensor<4xf32>
    fused.yield %s : tensor<4xf32>
  }
  func.return
}

// CHECK: 'fused.kernel' body: expected graph ops (or ops that implement their interface), got 'builtin.unrealized_conversion_cast'; move it out of the kernel

// -----

func.func @f(%x: tensor<4xf32>) {
  %r = fused.kernel(%a = %x : tensor<4xf32>) -> (tensor<4xf32>) {
    %s = graph.exp %x : (tensor<4xf32>) -> tensor<4xf32>
    fused.yield %s : tensor<4xf32>
  }
  func.return
}

// CHECK: 'graph.exp' operand 0: the value is defined outside of the enclosing 'fused.kernel', which is isolated from above; hand it in as an operand

// -----

func.func @f(%x: tensor<4xf32>) {
  "fused.kernel"(%x) ({
  ^bb0(%a: tensor<5xf32>):
    "fused.yield"() : () -> ()
  }) : (tensor<4xf32>) -> ()
  func.return
}

// CHECK: 'fused.kernel' block arguments: expected (tensor<4xf32>) as its operands, got (tensor<5xf32>)

// -----

func.func @f(%x: tensor<4xf32>) {
  fused.yield %x : tensor<4xf32>
}

// CHECK: 'fused.yield' expects parent op to be one of 'fused.kernel', 'fused.partition'

// -----

func.func @f(%x: tensor<4x4xf32, "csr">) {
  %r = fused.kernel(%a = %x : tensor<4x4xf32, "csr">) -> (tensor<4x4xf32, "csr">) {
    fused.yield %a : tensor<4x4xf32, "csr">
  }
  func.return
}

// CHECK: 'fused.kernel' type 'tensor<4x4xf32, "csr">': expected an encoding such as #graph.order<1, 0>, got '"csr"', which would be ignored; remove it, or register an attribute that implements EncodingPart

// -----

func.func @f(%x: tensor<4xf32>) {
  %r = fused.kernel(%a = %x : tensor<4xf32>) -> (tensor<4xf32>) attributes {implementation = "numpy.sort", workspace = 0 : i64} {
    %s = graph.sort %a : (tensor<4xf32>) -> tensor<4xf32>
    fused.yield %s : tensor<4xf32>
  }
  func.return
}

// CHECK: 'fused.kernel' property 'workspace': expected a number of bytes above 0, as in 4096 : i64, got 0 : i64; remove it and run select-implementation again

// -----

func.func @f(%x: tensor<4xf32>) {
  %r = fused.kernel(%a = %x : tensor<4xf32>) -> (tensor<4xf32>) attributes {implementation = "numpy.sort", workspace = 64 : i32} {
    %s = graph.sort %a : (tensor<4xf32>) -> tensor<4xf32>
    fused.yield %s : tensor<4xf32>
  }
  func.return
}

// CHECK: 'fused.kernel' property 'workspace': expected a number of bytes above 0, as in 4096 : i64, got 64 : i32; remove it and run select-implementation again

// -----

func.func @f(%x: tensor<4xf32>) {
  %r = fused.kernel(%a = %x : tensor<4xf32>) -> (tensor<4xf32>) attributes {workspace = 64 : i64} {
    %s = graph.sort %a : (tensor<4xf32>) -> tensor<4xf32>
    fused.yield %s : tensor<4xf32>
  }
  func.return
}

// CHECK: 'fused.kernel' property 'workspace': expected an implementation that takes it, got none; remove it or run select-implementation

// -----

func.func @f(%x: tensor<4xf32>) {
  %r = fused.kernel(%a = %x : tensor<4xf32>) -> (tensor<4xf32>) attributes {implementation = "numpy.sort", workspace_slot = 0 : i64} {
    %s = graph.sort %a : (tensor<4xf32>) -> tensor<4xf32>
    fused.yield %s : tensor<4xf32>
  }
  func.return
}

// CHECK: 'fused.kernel' property 'workspace_slot': expected the property 'workspace' beside it, got none; remove it and run plan-memory again

// -----

func.func @f(%x: tensor<4xf32>) {
  %r = fused.kernel(%a = %x : tensor<4xf32>) -> (tensor<4xf32>) attributes {implementation = "numpy.sort", workspace = 64 : i64, workspace_slot = -1 : i64} {
    %s = graph.sort %a : (tensor<4xf32>) -> tensor<4xf32>
    fused.yield %s : tensor<4xf32>
  }
  func.return
}

// CHECK: 'fused.kernel' property 'workspace_slot': expected an offset, as in 0 : i64, got -1 : i64; remove it and run plan-memory again

// -----

func.func @f(%x: tensor<4xf32>) {
  %r = fused.partition(%a = %x : tensor<4xf32>) -> (tensor<4xf32>) attributes {backend = "mine", memory = "elsewhere"} {
    fused.yield %a : tensor<4xf32>
  }
  func.return
}

// CHECK: 'fused.partition' property 'memory': expected private, workspace or planned, got 'elsewhere'

// -----

func.func @f(%x: tensor<4xf32>) {
  %r = fused.partition(%a = %x : tensor<4xf32>) -> (tensor<4xf32>) attributes {backend = "mine", memory = "private", workspace = 64 : i64} {
    fused.yield %a : tensor<4xf32>
  }
  func.return
}

// CHECK: 'fused.partition' property 'workspace': expected bytes where memory is "workspace", and there alone

// -----

func.func @f(%x: tensor<4xf32>) {
  %r = fused.partition(%a = %x : tensor<4xf32>) -> (tensor<4xf32>) attributes {backend = "mine", memory = "private", schedule = {kind = "row"}} {
    fused.yield %a : tensor<4xf32>
  }
  func.return
}

// CHECK: 'fused.partition' property 'schedule': expected none, as its backend decides; remove it

// -----

func.func @f(%x: tensor<4xf32>) {
  %r = fused.partition(%a = %x : tensor<4xf32>) -> (tensor<4xf32>) attributes {memory = "private"} {
    fused.yield %a : tensor<4xf32>
  }
  func.return
}

// CHECK: fused.partition

// -----

func.func @f(%x: tensor<4xf32>) {
  %r = fused.partition(%a = %x : tensor<4xf32>) -> (tensor<4xf32>) attributes {backend = "mine", memory = "planned", inner_slots = array<i64: 0>} {
    %0 = graph.exp %a : (tensor<4xf32>) -> tensor<4xf32>
    fused.yield %0 : tensor<4xf32>
  }
  func.return
}

// CHECK: 'fused.partition' property 'inner_slots': expected 0 offsets, one for each value that is planned inside, got 1; remove it and run plan-memory again

// -----

func.func @f(%x: tensor<?xf32>) {
  %r = fused.partition(%a = %x : tensor<?xf32>) -> (tensor<?xf32>) attributes {backend = "mine", memory = "planned"} {
    %0 = graph.exp %a : (tensor<?xf32>) -> tensor<?xf32>
    %1 = graph.exp %0 : (tensor<?xf32>) -> tensor<?xf32>
    fused.yield %1 : tensor<?xf32>
  }
  func.return
}

// CHECK: 'fused.partition' property 'memory': expected known extents inside where memory is planned, got 'tensor<?xf32>'; write private

// -----

func.func @f(%x: tensor<4xf32>) {
  %r = fused.partition(%a = %x : tensor<4xf32>) -> (tensor<4xf32>) attributes {backend = "mine", memory = "planned", workspace = 64 : i64} {
    fused.yield %a : tensor<4xf32>
  }
  func.return
}

// CHECK: 'fused.partition' property 'workspace': expected bytes where memory is "workspace", and there alone

// -----

func.func @f(%x: tensor<4xf32>) {
  %r, %m = fused.kernel(%a = %x : tensor<4xf32>) -> (tensor<4xf32>, tensor<4xf32>) attributes {implementation = "mine.exp", saved = array<i64: 1>} {
    %0 = graph.exp %a : (tensor<4xf32>) -> tensor<4xf32>
    %1 = graph.tanh %0 : (tensor<4xf32>) -> tensor<4xf32>
    fused.yield %0, %1 : tensor<4xf32>, tensor<4xf32>
  }
  func.return
}

// CHECK: 'fused.kernel' property 'saved': expected the numbers of the last results, all of what ops beside one op make of its operands, and the implementation that leaves them, got [1] of 2 results; run unfuse and select-composites again
