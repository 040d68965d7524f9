"""The images in use: docker-compose.yml on a Docker engine, and the kustomize base on podman."""
