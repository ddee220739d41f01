// A C++ type as a class of Python, whose instances own one value each and keep
// the objects alive that the value refers to.
#pragma once

#include <memory>
#include <utility>

#include "python/binding/object.h"

namespace tarn::python {

template <typename T>
class Class {
 public:
  static constexpr int kMostOwners = 2;

  struct Instance {
    PyObject_HEAD  // the macro has its semicolon
        T* value;
    PyObject* owners[kMostOwners];
  };

  /// Adds the class to a module; all tables outlive the process. `make` is the
  /// slot Py_tp_new, null for a class that only functions make.
  static void Add(PyObject* module, const char* qualified_name,
                  PyMethodDef* methods, PyGetSetDef* properties, newfunc make) {
    PyType_Slot slots[] = {{Py_tp_dealloc, reinterpret_cast<void*>(&Delete)},
                           {Py_tp_methods, methods},
                           {Py_tp_getset, properties},
                           {Py_tp_new, reinterpret_cast<void*>(make)},
                           {0, nullptr}};
    PyType_Spec spec = {qualified_name, sizeof(Instance), 0, Py_TPFLAGS_DEFAULT,
                        slots};
    Owned type(PyType_FromSpec(&spec));
    if (PyModule_AddType(module, reinterpret_cast<PyTypeObject*>(type.get())) !=
        0) {
      throw ErrorIsSet();
    }
    type_ = reinterpret_cast<PyTypeObject*>(type.Release());
  }

  /// A new instance; the owners' references are added.
  static Owned Wrap(std::unique_ptr<T> value, PyObject* first_owner,
                    PyObject* second_owner = nullptr) {
    const auto allocate =
        reinterpret_cast<allocfunc>(PyType_GetSlot(type_, Py_tp_alloc));
    Owned object(allocate(type_, 0));
    Instance* instance = Cast(object.get());
    instance->value = value.release();
    Py_XINCREF(first_owner);
    Py_XINCREF(second_owner);
    instance->owners[0] = first_owner;
    instance->owners[1] = second_owner;
    return object;
  }

  static bool Is(PyObject* object) {
    return object != nullptr && Py_TYPE(object) == type_;
  }

  /// The value of an instance. Throws ErrorIsSet (TypeError) for other objects.
  static T* Of(PyObject* object) {
    if (Is(object)) return Cast(object)->value;
    PyErr_Format(PyExc_TypeError, "want an instance of %R, got %R",
                 reinterpret_cast<PyObject*>(type_), object);
    throw ErrorIsSet();
  }

  /// What an instance keeps alive first.
  static PyObject* OwnerOf(PyObject* object) {
    Of(object);
    return Cast(object)->owners[0];
  }

 private:
  static Instance* Cast(PyObject* object) {
    return reinterpret_cast<Instance*>(object);
  }

  static void Delete(PyObject* object) {
    PyTypeObject* type = Py_TYPE(object);
    Instance* instance = Cast(object);
    delete instance->value;  // before what it refers to
    for (PyObject* owner : instance->owners) Py_XDECREF(owner);
    reinterpret_cast<freefunc>(PyType_GetSlot(type, Py_tp_free))(object);
    Py_DECREF(type);
  }

  static inline PyTypeObject* type_ = nullptr;
};

}  // namespace tarn::python
