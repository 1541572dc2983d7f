// A page opened from the disk may start no worker: the search then runs in a hidden frame.
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(url) {
      super();
      const frame = Object.assign(document.createElement("iframe"), { hidden: true });
      const start = () => {
        document.body.appendChild(frame);
        const inside = (this.inside = frame.contentWindow);
        inside.importScripts = () => {};
        inside.postMessage = (data) => this.dispatchEvent(new MessageEvent("message", { data }));
        const script = inside.document.createElement("script");
        this.ready = new Promise((done) => (script.onload = done));
        script.src = url;
        inside.document.body.appendChild(script);
      };
      this.started = document.body
        ? Promise.resolve(start())
        : new Promise((done) => addEventListener("DOMContentLoaded", () => done(start())));
    }
    postMessage(data) {
      this.started
        .then(() => this.ready)
        .then(() => this.inside.dispatchEvent(new MessageEvent("message", { data })));
    }
    terminate() {}
  };
}
