"""The same environments over HTTP: resources, agent and model servers, and the supervisor that starts them together."""
