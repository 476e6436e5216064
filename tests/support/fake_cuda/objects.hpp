// Objects that the stand-in of a library hands out, each of a kind: an address of anything else is none.
#pragma once
#include <set>

template <class Object>
class Objects {
 public:
  Object *of(const void *handle, int kind) const {
    auto *found = static_cast<Object *>(const_cast<void *>(handle));
    return objects.count(found) && found->kind == kind ? found : nullptr;
  }
  Object *made(const Object &object) { return *objects.insert(new Object(object)).first; }
  bool destroyed(const void *handle, int kind) {
    Object *found = of(handle, kind);
    objects.erase(found);
    delete found;
    return found != nullptr;
  }

 private:
  std::set<Object *> objects;
};
