import json
import os
import sys

report = {"version": list(sys.version_info[:3]), "executable": sys.executable}
try:
    import rankpool

    report["client"] = os.path.dirname(rankpool.__file__)
except BaseException as error:
    report["client_error"] = "%s: %s" % (type(error).__name__, error)
try:
    import torch

    report["torch"] = torch.__version__
    report["cuda"] = torch.cuda.is_available()
    report["cuda_compiled"] = torch.version.cuda or ""
except BaseException as error:
    report["torch_error"] = "%s: %s" % (type(error).__name__, error)
print(json.dumps(report))
