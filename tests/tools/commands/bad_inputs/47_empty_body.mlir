// a body with nothing in it; the error may stand at the function or at its end
func.func @main(%x: tensor<4x8xf32>) -> tensor<4x8xf32> {
}
