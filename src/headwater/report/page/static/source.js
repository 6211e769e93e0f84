// Where data come from: a server, a service with many users, or the file that the page is part of.
import { h } from "./dom.js";
import { askService, changeButtons, changeStudy, priorityBox } from "./service.js";

const READ_MS = 10000; // so often a study of a service is read anew at most
const READ_SHARE = 40; // and so many times as long as that took

async function ask(path, query, options) {
  const answer = await fetch(`/api/${path}?${new URLSearchParams(query)}`, options);
  if (answer.status === 401) throw new Error("The dashboard was started anew; open the URL that it printed.");
  const value = await answer.json();
  if (value.error) throw new Error(value.error);
  return value;
}

export class LiveSource {
  isLive = true;
  hasStages = true; // each has a page of its own
  list = ["#", "studies"];

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

export class ServiceSource {
  isLive = true;
  list = ["/", "queue"];
  submission = null;
  role = "viewer";

  async study(id) {
    const path = `studies/${encodeURIComponent(id)}`;
    const [shown, { user }] = await Promise.all([askService(path), askService("studies")]);
    [this.submission, this.role] = [shown, user.role];
    if (!shown.progress.statuses) throw new Error(`It is ${shown.state} and has not reported yet${shown.reason ? `: ${shown.reason}` : "."}`);
    const pack = await askService(`${path}/page`);
    return { ...pack, head: { ...pack.head, id, whole: null, ...standing(shown) } };
  }

  async importance(id) {
    return (await askService(`studies/${encodeURIComponent(id)}/page?importance=1`)).importance;
  }

  async trial() {
    return null;
  }

  controls(say) {
    // What stands in the place of the dashboard's own stop button.
    const study = this.submission;
    if (this.role === "viewer") return `of ${study.user}, priority ${study.priority}`;
    const change = async (what, body) => {
      try {
        say(await changeStudy(study, what, body));
      } catch (error) {
        say(error.message);
      }
    };
    return h("span", { class: "actions" }, changeButtons(study, change), ["stopped", "done", "failed"].includes(study.state) ? null : h("label", { class: "field" }, "priority", priorityBox(study, change)));
  }

  follow(id, since, hear) {
    let isOpen = true;
    const wait = (ms) => new Promise((done) => setTimeout(done, ms));
    const watch = async () => {
      let [read, gap] = [Date.now(), READ_MS];
      while (isOpen) {
        try {
          const found = await askService(`studies/${encodeURIComponent(id)}?wait=20&version=${this.submission.version}`);
          if (!isOpen) return;
          hear.state(true);
          const isTurned = found.state !== this.submission.state;
          this.submission = found;
          hear.head(standing(found));
          if (!isTurned && Date.now() - read < gap) continue;
          const begin = Date.now();
          await hear.reload();
          read = Date.now();
          gap = Math.max(READ_MS, READ_SHARE * (read - begin));
        } catch {
          hear.state(false);
          await wait(3000);
        }
      }
    };
    hear.state(true);
    watch();
    return () => (isOpen = false);
  }
}

function standing(submission) {
  // What the service knows of a study without reading its record.
  const { statuses, best, num_epochs } = submission.progress;
  return { state: submission.state, wish: submission.wish, statuses, best, num_epochs, num_trials: Object.values(statuses || {}).reduce((sum, size) => sum + size, 0) };
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
