// A worker where browsers start none: in pages opened from disk (file:). The
// theme's search asks for a Worker; here its script runs in an empty frame, and
// messages go both ways as copies, as between threads.
if (location.protocol === "file:") {
  self.Worker = class extends EventTarget {
    constructor(url) {
      super();
      const frame = document.createElement("iframe");
      frame.hidden = true;
      document.body.append(frame);
      this.inner = frame.contentWindow;
      this.waiting = []; // until the script listens
      this.inner.postMessage = (data) => this.tell(this, data);
      const script = this.inner.document.createElement("script");
      script.src = url;
      script.onload = () => {
        const waiting = this.waiting;
        this.waiting = null;
        waiting.forEach((data) => this.tell(this.inner, data));
      };
      this.inner.document.body.append(script);
    }

    tell(target, data) {
      const message = new MessageEvent("message", { data: structuredClone(data) });
      setTimeout(() => target.dispatchEvent(message));
    }

    postMessage(data) {
      if (this.waiting) this.waiting.push(data);
      else this.tell(this.inner, data);
    }
  };
}
