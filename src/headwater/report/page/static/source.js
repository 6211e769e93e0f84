// Where data come from: a server, or the file that the page is part of.

async function ask(path, query, options) {
  const answer = await fetch(`/api/${path}?${new URLSearchParams(query)}`, options);
  if (answer.status === 401) throw new Error("The dashboard was started anew; open the URL that it printed.");
  const value = await answer.json();
  if (value.error) throw new Error(value.error);
  return value;
}

export class LiveSource {
  isLive = true;

  studies() {
    return ask("studies", {});
  }

  study(id) {
    return ask("study", { id });
  }

  curves(id, metric) {
    return ask("curves", { id, metric });
  }

  trial(id, number) {
    return ask("trial", { id, number });
  }

  importance(id) {
    return ask("importance", { id });
  }

  stop(id) {
    return ask("stop", { id }, { method: "POST" });
  }

  follow(id, since, hear) {
    const events = new EventSource(`/api/events?${new URLSearchParams({ id, since })}`);
    events.onopen = () => hear.state(true);
    events.onerror = () => hear.state(false);
    events.onmessage = (event) => hear.patch(JSON.parse(event.data));
    events.addEventListener("reload", () => hear.reload());
    return () => events.close();
  }
}

export class FileSource {
  isLive = false;

  constructor(data) {
    this.data = data;
  }

  async study() {
    return this.data;
  }

  async importance() {
    return this.data.importance;
  }

  async trial() {
    return null;
  }

  follow() {
    return () => {};
  }
}
