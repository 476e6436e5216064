{
  "module": {
    "functions": [{"name": "main", "ops": [{"op": "add", "inputs": ["x", "y"]}]}]
  }
}
