// a scalar type where a tensor is wanted
func.func @main(%x: f32) -> f32 {
  %0 = graph.abs %x : (f32) -> f32
  func.return %0 : f32
}
