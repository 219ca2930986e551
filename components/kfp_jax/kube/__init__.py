"""The only code that knows Kubernetes' wire: requests, watches, logs."""
