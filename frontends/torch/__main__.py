"""`python -m fuse_opt.frontends.torch --model mlp`: a model of PyTorch as text."""

import sys

from fuse_opt.frontends.torch.export import main

if __name__ == "__main__":
    sys.exit(main())
