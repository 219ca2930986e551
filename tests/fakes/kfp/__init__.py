"""A double of Kubeflow Pipelines 2.17.0: its driver here, its launcher in `launcher/`.

It executes a compiled pipeline. The driver resolves what each task is given and how its pod is
made; who makes the pod is passed in. It follows what was measured on the backend of that version.

Left out, and refused where it is met: importers, loops over artifacts, modelcar (`oci://`), the
workspace, and volumes and variables other than of claims, empty folders, secrets, ConfigMaps and
fields. Left out: the cache (a task that asks for it runs), the retry strategies of Argo and of a
task, driver pods, and MLMD: what a task published is what its launcher writes last into its log.
Tasks of one scope run one after another, but the iterations of a loop at once.
"""
