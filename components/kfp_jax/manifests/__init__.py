"""From a spec to what Kubernetes is asked to make: pure, no I/O, standard library only.

`trainjob.trainjob` and `jobset.jobset` give the object to submit. Their pods see the same
environment, and each refuses with a `SpecError` what could only fail later.
"""
