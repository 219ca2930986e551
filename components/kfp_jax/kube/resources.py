"""The kinds of objects that we deal with."""

from kfp_jax.kube.requests import PODS, Resource

__all__ = ["PODS"]

EVENTS = Resource("", "v1", "events")
SERVICES = Resource("", "v1", "services")
SECRETS = Resource("", "v1", "secrets")
CONFIG_MAPS = Resource("", "v1", "configmaps")
ACCOUNTS = Resource("", "v1", "serviceaccounts")
NETWORK_POLICIES = Resource("networking.k8s.io", "v1", "networkpolicies")
NAMESPACES = Resource("", "v1", "namespaces")
CLAIMS = Resource("", "v1", "persistentvolumeclaims")
QUOTAS = Resource("", "v1", "resourcequotas")
LIMIT_RANGES = Resource("", "v1", "limitranges")
TRAINJOBS = Resource("trainer.kubeflow.org", "v1alpha1", "trainjobs")
RUNTIMES = Resource("trainer.kubeflow.org", "v1alpha1", "trainingruntimes")
CLUSTER_RUNTIMES = Resource("trainer.kubeflow.org", "v1alpha1", "clustertrainingruntimes")
JOBSETS = Resource("jobset.x-k8s.io", "v1alpha2", "jobsets")
LOCAL_QUEUES = Resource("kueue.x-k8s.io", "v1beta1", "localqueues")
