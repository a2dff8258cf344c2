// The search of the site runs in a worker, which browsers do not start from files: there, it runs in a frame.
if (location.protocol === "file:") {
  window.IFrameWorker = window.Worker = class extends EventTarget {
    constructor(url) {
      super();
      const frame = document.createElement("iframe");
      frame.hidden = true;
      document.body.append(frame);
      const inner = frame.contentWindow, script = inner.document.createElement("script");
      this.frame = frame;
      this.loaded = new Promise(done => script.addEventListener("load", done));
      inner.postMessage = data => {
        const event = new MessageEvent("message", { data });
        this.dispatchEvent(event);
        if (this.onmessage) this.onmessage(event);
      };
      inner.importScripts = async (...urls) => {
        for (const source of urls) await new Promise(done => {
          const part = inner.document.createElement("script");
          part.addEventListener("load", done);
          part.src = source;
          inner.document.body.append(part);
        });
      };
      script.src = url;
      inner.document.body.append(script);
    }

    postMessage(data) {
      this.loaded.then(() => this.frame.contentWindow.dispatchEvent(new MessageEvent("message", { data })));
    }

    terminate() { this.frame.remove(); }
  };
}
