// a type of an unknown dialect
func.func @main(%x: !nosuch.type) -> !nosuch.type {
  func.return %x : !nosuch.type
}
